package incidents

import (
	"context"
	"fmt"
	"strings"

	"github.com/vipwalk/vipwalk/testdata/cluster"
)

// Measure makes the connections of a probe and says how they ended: in the
// words of cluster.Tally, with the workload of the pods that answered where
// these are no backends, with their number, or with their shares.
func (s *Scene) Measure(ctx context.Context, p Probe) string {
	from, addr := s.clients[p.From], s.address(p.To)
	n := tries
	switch p.Kind {
	case Backends:
		s.Cluster.Connect(ctx, from, addr, 1)
	case Shares:
		n = shareTries
	}
	made := s.connect(ctx, from, addr, n)
	words := cluster.Tally(made)
	if words != "answered" {
		return words
	}
	pods := map[string]int{}
	for _, t := range made {
		pods[t.Pod]++
	}
	switch {
	case p.Kind == Backends && len(pods) == 1:
		return "answered by 1 pod"
	case p.Kind == Backends:
		return fmt.Sprintf("answered by %d pods", len(pods))
	case p.Kind == Shares:
		return fmt.Sprintf("answered, %d of 4 times by the same pod", quarters(pods, n))
	}
	return words + strangers(pods)
}

// connect makes n connections, some at once.
func (s *Scene) connect(ctx context.Context, from cluster.Client, addr string, n int) []cluster.Try {
	var made []cluster.Try
	for ; n > 0; n -= 50 {
		made = append(made, s.Cluster.Connect(ctx, from, addr, min(n, 50))...)
	}
	return made
}

// quarters is the share of the pod that answered most, of n answers, rounded to
// quarters.
func quarters(pods map[string]int, n int) int {
	most := 0
	for _, answers := range pods {
		most = max(most, answers)
	}
	return (4*most + n/2) / n
}

// strangers names the workloads of pods that are no backends.
func strangers(pods map[string]int) string {
	workloads := map[string]bool{}
	for pod := range pods {
		workload := pod
		for range 2 { // the ReplicaSet's hash and the pod's
			workload = workload[:max(0, strings.LastIndexByte(workload, '-'))]
		}
		workloads[workload] = true
	}
	if len(workloads) == 1 {
		for w := range workloads {
			if w == "orders" || w == "storefront" {
				return ""
			}
			return " by a pod of " + w
		}
	}
	return fmt.Sprintf(" by pods of %d workloads", len(workloads))
}

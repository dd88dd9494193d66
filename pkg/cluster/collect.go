package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// parallel is how many requests are under way at once.
const parallel = 12

// Collect reads what a scope calls for: at most MaxRounds rounds of requests,
// each round in parallel, and for one Service at most MaxRequests of them.
//
// What cannot be read is recorded in the Snapshot's Reads, with the reason and
// what would allow it; that is no error. An error is returned where nothing
// can be read at all: the server cannot be reached, or does not know who asks.
// Collect ends when ctx does.
func (c *Client) Collect(ctx context.Context, scope Scope) (*snapshot.Snapshot, error) {
	// client-go logs to stderr what it also returns.
	ctx = klog.NewContext(ctx, logr.Discard())
	k := &collection{client: c, scope: &scope, asked: map[request]bool{}}
	k.snap = &snapshot.Snapshot{TakenAt: c.now().UTC().Round(0)} // without the monotonic clock, as it is in a bundle
	k.snap.Inputs = []snapshot.Input{{Kind: "api", Ref: c.server, At: k.snap.TakenAt}}
	for range MaxRounds {
		batch := k.next()
		if len(batch) == 0 {
			break
		}
		if err := k.run(ctx, batch); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(k.snap.Reads, func(a, b snapshot.Read) int {
		return cmp.Or(cmp.Compare(slices.Index(snapshot.Resources, a.Resource), slices.Index(snapshot.Resources, b.Resource)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return k.snap, nil
}

// collection is one Collect under way.
type collection struct {
	client *Client
	scope  *Scope
	snap   *snapshot.Snapshot
	// asked are the requests that were sent or left out.
	asked map[request]bool
	sent  int
	// reached is set once an API server has answered.
	reached bool
}

// next is what to ask now: what is wanted and was not asked for, within the
// budget. What does not fit is recorded as not read.
func (k *collection) next() []request {
	var batch []request
	for _, r := range plan(k.scope, k.snap) {
		if k.asked[r] {
			continue
		}
		k.asked[r] = true
		if k.sent == k.budget() {
			k.snap.Reads.Add(leftOut(r))
			continue
		}
		k.sent++
		batch = append(batch, r)
	}
	return batch
}

// budget is how many requests may be sent. Only a walk of one Service has one;
// that of many asks for no more of each namespace.
func (k *collection) budget() int {
	s := k.scope
	one := len(s.Services) == 1 || len(s.Services) == 0 && s.ResolveAddress
	if one && len(s.Namespaces) == 0 && !s.Full && !s.everywhere() {
		return MaxRequests
	}
	return -1
}

// answer is what came back for a request.
type answer struct {
	objects snapshot.Objects
	err     error
}

func (k *collection) run(ctx context.Context, batch []request) error {
	answers := make([]answer, len(batch))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, r := range batch {
		g.Go(func() error {
			answers[i].objects, answers[i].err = k.client.read(ctx, r)
			return nil
		})
	}
	_ = g.Wait() // no request's error stops the others
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("interrupted while reading from the API server at %s: %w", k.client.server, context.Cause(ctx))
	}
	if err := k.hopeless(answers); err != nil {
		return err
	}
	for i, r := range batch {
		k.snap.Objects.Append(&answers[i].objects)
		k.snap.Reads.Add(outcome(r, answers[i].err))
	}
	k.snap.Objects.Sort()
	return nil
}

// hopeless is the error where it makes no sense to go on: the server does not
// know the user, or not a single answer so far came from an API server. That
// single resources are forbidden is an answer.
func (k *collection) hopeless(answers []answer) error {
	server := k.client.server
	var first error
	for _, a := range answers {
		if apierrors.IsUnauthorized(a.err) {
			return fmt.Errorf("the API server at %s does not accept these credentials (401 Unauthorized): log in again, or choose another --context or --user; `kubectl auth whoami` shows who you are", server)
		}
		if a.err == nil || answered(a.err) {
			k.reached = true
		} else if first == nil {
			first = a.err
		}
	}
	if k.reached {
		return nil
	}
	return fmt.Errorf("cannot read from the API server at %s: %s; is it up, and is this the right context (`kubectl config current-context`, `kubectl cluster-info`)?", server, reason(first))
}

// answered says whether an error is an API server's answer, rather than a
// failure on the way to it, or the answer of something else that listens
// there.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsUnexpectedServerError(err)
}

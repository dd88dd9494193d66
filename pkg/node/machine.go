package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// Machine is what reading a machine needs of it. ThisMachine gives the real
// one; a test gives a made one.
type Machine struct {
	// FS is the file system from its root: /proc/modules is "proc/modules".
	FS fs.FS
	// Run runs a program; Exec, on the real machine.
	Run Runner
	// Get asks a server on this machine by HTTP GET; see Get.
	Get Getter
	// List lists the rules of an nft-variant iptables program that has no
	// iptables-save beside it; see ListRules. Nil where there is no such way.
	List Lister
	// Hostname and Uname are the kernel's node name, and what `uname -a` says.
	Hostname func() (string, error)
	Uname    func() (string, error)
	// Root says whether this process has root's user ID.
	Root bool
	Now  func() time.Time
}

// rerun is the command that supplies what a user without privileges could not
// read.
const rerun = "sudo vipwalk node-state"

// Local reads this machine. It never changes it; see the package's
// documentation. What could not be read is in the state, with the reason; the
// error is for a machine that cannot be read at all (not Linux, no /proc) and
// for a context that is done.
func Local(ctx context.Context) (*snapshot.NodeState, error) {
	m, err := ThisMachine()
	if err != nil {
		return nil, err
	}
	return m.Read(ctx)
}

// Read reads the machine as Local does. The state has no Name; see IsNode.
func (m Machine) Read(ctx context.Context) (*snapshot.NodeState, error) {
	if _, err := fs.Stat(m.FS, "proc/self"); err != nil {
		return nil, fmt.Errorf("reading this machine: /proc is not mounted: %w", err)
	}
	k := m.kernel()
	readers := []func(context.Context) []snapshot.Text{
		func(ctx context.Context) []snapshot.Text { return m.rules(ctx, k, ipv4) },
		func(ctx context.Context) []snapshot.Text { return m.rules(ctx, k, ipv6) },
		m.addresses,
		func(context.Context) []snapshot.Text { return []snapshot.Text{m.sysctls(), k.text, m.builtinModules()} },
		func(context.Context) []snapshot.Text { return []snapshot.Text{m.podSockets()} },
		func(ctx context.Context) []snapshot.Text { return m.ipvs(ctx, k) },
	}
	texts := make([][]snapshot.Text, len(readers), len(readers)+2)
	var wg sync.WaitGroup
	for i, read := range readers {
		wg.Go(func() { texts[i] = read(ctx) })
	}
	wg.Wait()
	texts = append(texts, m.nft(ctx, k, texts[0], texts[1]))
	texts = append(texts, m.flows(slices.Concat(texts...)))
	// Last, because the rules count the packets of the question.
	texts = append(texts, m.proxy(ctx), m.names())
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading this machine: %w", err)
	}
	state := &snapshot.NodeState{At: m.Now().UTC().Truncate(time.Second), Via: "local"}
	for _, t := range texts {
		state.Texts = append(state.Texts, t...)
	}
	return state, nil
}

func (m Machine) names() []snapshot.Text {
	return []snapshot.Text{
		answer(snapshot.Hostname, "hostname", m.Hostname),
		answer(snapshot.Uname, "uname -a", m.Uname),
	}
}

func answer(kind snapshot.TextKind, ref string, ask func() (string, error)) snapshot.Text {
	s, err := ask()
	if err != nil {
		return snapshot.Text{Kind: kind, Ref: ref, Status: snapshot.Failed, Why: err.Error(), Supply: ref}
	}
	return snapshot.Text{Kind: kind, Ref: ref, Status: snapshot.Done, Content: s + "\n"}
}

// maxFile bounds what is read of a file under /proc, in bytes.
const maxFile = 64 << 20

func (m Machine) readFile(name string) (string, error) {
	f, err := m.FS.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxFile {
		return "", fmt.Errorf("/%s: over %d bytes", name, maxFile)
	}
	return string(b), nil
}

// unreadable makes a Text of a file that could not be read.
func (m Machine) unreadable(kind snapshot.TextKind, name string, err error) snapshot.Text {
	t := snapshot.Text{Kind: kind, Ref: "/" + name, Status: snapshot.Failed, Why: err.Error(), Supply: "cat /" + name}
	if errors.Is(err, fs.ErrPermission) && !m.Root {
		t.Why, t.Supply = fmt.Sprintf("/%s is not readable without root", name), rerun
	}
	return t
}

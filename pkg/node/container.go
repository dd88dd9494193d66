package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vipwalk/vipwalk/pkg/lazyregexp"
	"github.com/vipwalk/vipwalk/pkg/snapshot"
)

// Container is a container on a node's own network, as kube-proxy's is, through
// which the node is read. What kube-proxy's image has is enough: cat, grep,
// iptables, nft and ipset, and no shell is asked for.
type Container struct {
	// Run runs a command in it: a program's name, as the container's own PATH
	// finds it, and its arguments. What it wrote is returned with an error too.
	Run func(ctx context.Context, argv []string) (stdout string, err error)
	Now func() time.Time
}

// AllowedInContainer returns an error unless the command line is one of the few
// that are run in a container: those of Allowed by their bare name, and cat and
// grep of known files below /proc.
func AllowedInContainer(argv []string) error {
	if len(argv) > 0 {
		name, args := argv[0], argv[1:]
		switch {
		case name == "cat" && len(args) == 1 && catFile(args[0]),
			name == "grep" && (slices.Equal(args, grepFiles) || slices.Equal(args, grepInterfaces)),
			!strings.Contains(name, "/") && Allowed("/usr/sbin/"+name, args...) == nil:
			return nil
		}
	}
	return fmt.Errorf("refusing to run %q in a container: not an allowed read", argv)
}

// catFiles are read whole. None of them holds what a process, a file or a user
// of the node is called.
var catFiles = []string{
	"/proc/modules", "/proc/net/ip_tables_names", "/proc/net/ip6_tables_names", "/" + virtualServersFile,
	"/" + flowStatsFile, "/proc/sys/kernel/modules_disabled", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/hostname",
}

var modulesBuiltin = lazyregexp.New(`^/lib/modules/[0-9][A-Za-z0-9._+~-]{0,127}/modules\.builtin$`)

func catFile(name string) bool {
	return slices.Contains(catFiles, name) || modulesBuiltin.MatchString(name) && path.Clean(name) == name
}

var (
	grepFiles = append([]string{"-sH", "^"}, sysctlPaths(func(p string) bool { return !strings.Contains(p, "*") })...)
	// Of the interfaces' settings those that have one of the names; grep, unlike
	// a shell, finds the interfaces itself.
	grepInterfaces = append(interfaceNames(), "/proc/sys/net/ipv4/conf", "/proc/sys/net/ipv6/conf")
)

func sysctlPaths(keep func(string) bool) []string {
	var out []string
	for _, p := range sysctlFiles {
		if keep(p) {
			out = append(out, "/proc/sys/"+p)
		}
	}
	return out
}

func interfaceNames() []string {
	out := []string{"-rsH", "^"}
	for _, p := range sysctlPaths(func(p string) bool { return strings.Contains(p, "*") }) {
		if name := "--include=" + path.Base(p); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// Read reads the node through the container, after the same looks at what the
// kernel has as on the node itself. Connections, processes and sockets are not
// read that way. The error is for a container in which nothing could be read.
func (c Container) Read(ctx context.Context) (*snapshot.NodeState, error) {
	files := &containerFS{ctx: ctx, run: c.Run, seen: map[string]answered{}}
	m := Machine{FS: files, Root: true, Now: c.Now, Run: func(ctx context.Context, program string, args ...string) (string, error) {
		if err := Allowed(program, args...); err != nil {
			return "", err
		}
		return c.Run(ctx, append([]string{path.Base(program)}, args...))
	}}
	k := m.kernel()
	var texts []snapshot.Text
	v4, v6 := m.rules(ctx, k, ipv4), m.rules(ctx, k, ipv6)
	nft := m.nft(ctx, k, v4, v6) // which may correct what is said of the two
	texts = append(slices.Concat(v4, v6, nft), m.ipvs(ctx, k)...)
	texts = append(texts, m.addresses(ctx)...)
	texts = append(texts, c.sysctls(ctx), k.text, m.builtinModules(), m.whole(snapshot.ConntrackStat, flowStatsFile))
	texts = append(texts, m.whole(snapshot.Hostname, "proc/sys/kernel/hostname"))
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading through a container: %w", context.Cause(ctx))
	}
	if !slices.ContainsFunc(texts, func(t snapshot.Text) bool { return t.Status == snapshot.Done && t.Content != "" }) {
		return nil, fmt.Errorf("nothing could be read: %s", firstWhy(slices.Concat([]snapshot.Text{k.text}, texts)))
	}
	return &snapshot.NodeState{At: c.Now().UTC().Truncate(time.Second), Via: "exec", Texts: texts}, nil
}

func firstWhy(texts []snapshot.Text) string {
	for _, t := range texts {
		if t.Status == snapshot.Failed {
			return t.Ref + ": " + t.Why
		}
	}
	return "every file and every list is empty"
}

// sysctls reads the settings in the form of `sysctl -a`. grep ends with 2 where
// a file is missing, and says what it found all the same.
func (c Container) sysctls(ctx context.Context) snapshot.Text {
	t := snapshot.Text{Kind: snapshot.Sysctl, Ref: "sysctl -a", Status: snapshot.Done}
	var lines []string
	var failed error
	for _, args := range [][]string{grepFiles, grepInterfaces} {
		out, err := c.Run(ctx, append([]string{"grep"}, args...))
		for line := range strings.Lines(out) {
			file, value, ok := strings.Cut(strings.TrimSpace(line), ":")
			if name, below := strings.CutPrefix(file, "/proc/sys/"); ok && below && sysctlWanted(name) {
				lines = append(lines, sysctlName(name)+" = "+strings.TrimSpace(value)+"\n")
			}
		}
		if out == "" && err != nil {
			failed = err
		}
	}
	if len(lines) == 0 {
		t.Status, t.Why, t.Supply = snapshot.Failed, "nothing was found below /proc/sys/net", rerun
		if failed != nil {
			t.Why = failed.Error()
		}
		return t
	}
	slices.Sort(lines)
	t.Content = strings.Join(slices.Compact(lines), "")
	return t
}

func sysctlWanted(name string) bool {
	return slices.ContainsFunc(sysctlFiles, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return err == nil && ok
	})
}

// containerFS shows the files of a container that can be had by cat. Of
// programs it shows those that may run, by the names that distributions give
// to the two variants of iptables; whether one is there shows when it is run.
type containerFS struct {
	ctx context.Context
	run func(ctx context.Context, argv []string) (string, error)

	mu   sync.Mutex
	seen map[string]answered
}

type answered struct {
	content string
	err     error
}

// inContainer are the programs, and what each is a link to.
var inContainer = map[string]string{
	"usr/sbin/iptables-nft-save":     "xtables-nft-multi",
	"usr/sbin/ip6tables-nft-save":    "xtables-nft-multi",
	"usr/sbin/iptables-legacy-save":  "xtables-legacy-multi",
	"usr/sbin/ip6tables-legacy-save": "xtables-legacy-multi",
	"usr/sbin/xtables-nft-multi":     "",
	"usr/sbin/xtables-legacy-multi":  "",
	"usr/sbin/nft":                   "",
	"usr/sbin/ipset":                 "",
	"usr/sbin/ip":                    "",
	"proc/net":                       "",
}

// Open reads a file by cat; one that may not be read so is not there.
func (c *containerFS) Open(name string) (fs.File, error) {
	full := "/" + name
	if !catFile(full) {
		return nil, &fs.PathError{Op: "open", Path: full, Err: fs.ErrNotExist}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.seen[full]
	if !ok {
		a.content, a.err = c.run(c.ctx, []string{"cat", full})
		a.err = catError(full, a.err)
		c.seen[full] = a
	}
	if a.err != nil {
		return nil, a.err
	}
	return &catOutput{Reader: strings.NewReader(a.content), name: path.Base(full), size: int64(len(a.content))}, nil
}

// catError tells from cat's complaint why a file was not read.
func catError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), name+": No such file or directory"):
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case strings.Contains(err.Error(), name+": Permission denied"):
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return err
}

// Stat and Lstat tell of the programs, and of nothing else.
func (c *containerFS) Stat(name string) (fs.FileInfo, error) {
	if _, ok := inContainer[name]; !ok {
		return nil, &fs.PathError{Op: "stat", Path: "/" + name, Err: fs.ErrNotExist}
	}
	return fileInfo{name: path.Base(name)}, nil
}

// Lstat is Stat without following a link.
func (c *containerFS) Lstat(name string) (fs.FileInfo, error) {
	info, err := c.Stat(name)
	if err == nil && inContainer[name] != "" {
		return fileInfo{name: path.Base(name), mode: fs.ModeSymlink}, nil
	}
	return info, err
}

// ReadLink says what a program is a link to.
func (c *containerFS) ReadLink(name string) (string, error) {
	if to := inContainer[name]; to != "" {
		return to, nil
	}
	return "", &fs.PathError{Op: "readlink", Path: "/" + name, Err: errors.ErrUnsupported}
}

// catOutput is a file that was read.
type catOutput struct {
	io.Reader
	name string
	size int64
}

func (f *catOutput) Stat() (fs.FileInfo, error) { return fileInfo{name: f.name, size: f.size}, nil }
func (f *catOutput) Close() error               { return nil }

type fileInfo struct {
	name string
	size int64
	mode fs.FileMode
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) Mode() fs.FileMode  { return i.mode }
func (i fileInfo) ModTime() time.Time { return time.Time{} }
func (i fileInfo) IsDir() bool        { return false }
func (i fileInfo) Sys() any           { return nil }

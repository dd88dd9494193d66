package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"
)

const (
	// commandTimeout bounds one program. A ruleset of 100,000 rules takes
	// iptables-nft-save a few seconds.
	commandTimeout = 20 * time.Second
	// maxOutput bounds what is kept of one program's output, in bytes.
	maxOutput = 512 << 20
	maxStderr = 64 << 10
)

// Runner runs a program by its absolute path and returns what it wrote to its
// standard output. The error holds what it wrote to its standard error.
type Runner func(ctx context.Context, program string, args ...string) (stdout string, err error)

// programDirs are the folders that programs are taken from, in order. PATH is
// not consulted: root's may hold anything.
var programDirs = []string{
	"/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin",
	"/run/current-system/sw/bin",                // NixOS
	"/var/lib/rancher/k3s/data/current/bin/aux", // k3s brings its own
}

// commands are all command lines that may run, by the program's name. None of
// them writes: iptables-save without -t creates no table and takes no lock.
var commands = map[string][][]string{
	"iptables-save":         {{"-c"}},
	"ip6tables-save":        {{"-c"}},
	"iptables-nft-save":     {{"-c"}},
	"ip6tables-nft-save":    {{"-c"}},
	"iptables-legacy-save":  {{"-c"}},
	"ip6tables-legacy-save": {{"-c"}},
	"nft":                   {{"-j", "list", "tables"}, {"list", "tables"}}, // and one table: see listsTable
	"ipset":                 {{"save"}},
	"ip":                    {{"addr"}, {"route", "show", "table", "all"}, {"rule"}, {"-6", "rule"}},
}

// Allowed returns an error unless the command line is one of the few that this
// program runs: a known program, in a system folder, with exactly the known
// arguments.
func Allowed(program string, args ...string) error {
	dir, name := path.Split(program)
	if path.Clean(program) != program || !slices.Contains(programDirs, strings.TrimSuffix(dir, "/")) {
		return fmt.Errorf("refusing to run %q: not in a system folder", program)
	}
	for _, allowed := range commands[name] {
		if slices.Equal(allowed, args) {
			return nil
		}
	}
	if name == "nft" && listsTable(args) {
		return nil
	}
	return fmt.Errorf("refusing to run %q with arguments %q: not an allowed read", program, args)
}

// listsTable says whether nft is told to list one table, of a plain name.
func listsTable(args []string) bool {
	args = slices.Clone(args)
	if len(args) > 0 && args[0] == "-j" {
		args = args[1:]
	}
	return len(args) == 4 && args[0] == "list" && args[1] == "table" &&
		slices.Contains([]string{"ip", "ip6", "inet"}, args[2]) && nftName.MatchString(args[3])
}

// Exec is the Runner that runs programs on this machine. It refuses what
// Allowed refuses. A program gets no input, no environment but LC_ALL=C, and
// 20 seconds.
func Exec(ctx context.Context, program string, args ...string) (string, error) {
	if err := Allowed(program, args...); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	stdout, stderr := &bounded{max: maxOutput}, &bounded{max: maxStderr}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"LC_ALL=C"}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", fmt.Errorf("no end within %s", commandTimeout)
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", failure(err, stderr.String())
	}
	return stdout.String(), nil
}

// failure joins a program's exit status and the first line that it complained
// with.
func failure(err error, stderr string) error {
	for line := range strings.Lines(stderr) {
		if line = strings.TrimSpace(line); line != "" {
			return fmt.Errorf("%w: %s", err, shorten(line))
		}
	}
	return err
}

func shorten(s string) string {
	const most = 300
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

var errTooLong = errors.New("too much output")

// bounded keeps up to max bytes; more is an error, which ends the program.
type bounded struct {
	kept bytes.Buffer // no part of bounded, whose Write would be passed by for its ReadFrom
	max  int
}

func (b *bounded) String() string { return b.kept.String() }

func (b *bounded) Write(p []byte) (int, error) {
	if b.kept.Len()+len(p) > b.max {
		return 0, fmt.Errorf("%w: over %d bytes", errTooLong, b.max)
	}
	return b.kept.Write(p)
}

// Package cli is the command line: flags to options, options to a run, a run's
// result to an exit code. What is said to the user on stderr has three forms
// and no others: "error: ..." and "hint: ..." lines when something could not be
// done, and progress, which appears only on a terminal and is erased again.
// Results go to stdout.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Streams are the program's standard streams.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Main runs the program as it was called (args[0] is its name) and returns the
// exit code. An interrupt ends it with 130; a reader that went away (head) is
// no error.
func Main(args []string, s Streams, getenv func(string) string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Go would die of a broken stdout; so it is an error of Write instead.
	signal.Ignore(syscall.SIGPIPE)
	return Run(ctx, args, s, getenv)
}

// Run is Main without the signals: the context's end is the interrupt.
func Run(ctx context.Context, args []string, s Streams, getenv func(string) string) int {
	a := &app{Streams: s, getenv: getenv, program: programName(args), now: time.Now}
	root := a.rootCommand()
	root.SetArgs(arguments(args))
	err := whole(func() error { return root.ExecuteContext(ctx) })
	if err != nil && ctx.Err() != nil && !decided(err) {
		err = interrupted(err)
	}
	return a.exit(err)
}

// whole runs something that may read files as they lie in memory (see
// node.ReadFiles). Where one is cut short meanwhile, what is read of it is no
// longer there, and that is an error, not a crash.
func whole(run func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if _, fault := r.(interface{ Addr() uintptr }); !fault {
			panic(r)
		}
		err = usageErrorf("a file was cut short while it was read").hint("give a copy of the file, or pipe it in: --node-state - < FILE")
	}()
	return run()
}

// app is what the commands share.
type app struct {
	Streams
	getenv func(string) string
	// program is what the user typed: vipwalk, or kubectl vipwalk.
	program string
	now     func() time.Time
}

const pluginName = "vipwalk"

// base is the name by which the program was called, without folder and ending.
func base(args []string) string {
	if len(args) == 0 {
		return pluginName
	}
	return strings.TrimSuffix(filepath.Base(args[0]), ".exe")
}

func programName(args []string) string {
	if strings.HasPrefix(base(args), "kubectl-") || strings.HasPrefix(base(args), "kubectl_") {
		return "kubectl " + pluginName
	}
	return pluginName
}

// arguments are the arguments proper. kubectl asks an executable named
// kubectl_complete-vipwalk for a plugin's completions and passes it the words
// so far, which is what the hidden command __complete wants.
func arguments(args []string) []string {
	if len(args) == 0 {
		return []string{}
	}
	if base(args) == "kubectl_complete-"+pluginName {
		return append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	}
	return args[1:]
}

// isBrokenPipe says whether whoever read our output has gone away.
func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

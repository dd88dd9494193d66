package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// starter starts processes from one thread that lives as long as they may:
// the kernel sends Pdeathsig when the thread that forked ends, and not only
// when the whole process does.
type starter struct {
	requests chan startRequest
}

type startRequest struct {
	cmd   *exec.Cmd
	space *netspace
	done  chan error
}

func newStarter() *starter {
	s := &starter{requests: make(chan startRequest)}
	go s.loop()
	return s
}

func (s *starter) loop() {
	runtime.LockOSThread() // never unlocked: the thread's namespace is changed below
	for r := range s.requests {
		err := unix.Setns(int(r.space.file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = r.cmd.Start()
		}
		r.done <- err
	}
}

// close ends the thread, and with it whatever it started that still runs.
func (s *starter) close() { close(s.requests) }

// process is one program of the cluster, with its output in a log file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done
}

// start runs a program in a namespace; it is killed when this process ends.
func (s *starter) start(space *netspace, name, logDir string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, cmd: cmd, log: filepath.Join(logDir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("making the log of %s: %w", name, err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	r := startRequest{cmd: cmd, space: space, done: make(chan error, 1)}
	s.requests <- r
	if err := <-r.done; err != nil {
		return nil, fmt.Errorf("starting %s (%s): %w", name, cmd.Path, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// ended returns an error with the end of the log if the process has ended.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %v; its log %s ends with:\n%s", p.name, p.err, p.log, tail(p.log, 2000))
	default:
		return nil
	}
}

// stop kills the process and waits for its end.
func (p *process) stop() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(20 * time.Second):
		return fmt.Errorf("stopping %s: process %d is still there after 20 s", p.name, p.cmd.Process.Pid)
	}
}

// tail returns the last n bytes of a file, or why there are none.
func tail(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-n):])
}

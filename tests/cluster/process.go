package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// A process is a child with its log. It dies with the test process, however that one ends.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how it ended; valid after done
}

// spawn hands commands to the one thread that starts children: the kernel ties a child's death signal to
// the thread that started it, so that thread must live as long as the process.
var spawn = func() func(*exec.Cmd) error {
	type order struct {
		cmd   *exec.Cmd
		reply chan error
	}
	orders := make(chan order)
	go func() {
		runtime.LockOSThread()
		for o := range orders {
			o.reply <- o.cmd.Start()
		}
	}()
	return func(cmd *exec.Cmd) error {
		o := order{cmd, make(chan error)}
		orders <- o
		return <-o.reply
	}
}()

// startProcess runs a program with its output going to <name>.log in dir.
func startProcess(dir, name, program string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := spawn(p.cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// hasEnded says whether it runs no more.
func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop signals the process to end, and kills it after the grace period. It returns the exit error.
func (p *process) stop(grace time.Duration) error {
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.done:
		return p.err
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not end within %s of SIGTERM", p.name, grace)
	}
}

// stopNow signals the process until it ends: fairgate drains after one signal, and exits at once after
// again.
func (p *process) stopNow(grace time.Duration) error {
	err := poll(grace, 200*time.Millisecond, func() (bool, error) {
		select {
		case <-p.done:
			return true, nil
		default:
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
			return false, nil
		}
	})
	if err != nil {
		return p.stop(0)
	}
	return p.err
}

// untilReady polls until ready returns nil, the process ends, or the time is over.
func (p *process) untilReady(limit time.Duration, ready func() error) error {
	var last error
	err := poll(limit, 50*time.Millisecond, func() (bool, error) {
		select {
		case <-p.done:
			return false, fmt.Errorf("%s ended before it was ready: %v", p.name, p.err)
		default:
		}
		last = ready()
		return last == nil, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s is not ready after %s: %w", p.name, limit, last)
	}
	return err
}

// tail returns the last lines of the log.
func (p *process) tail(lines int) string {
	if p == nil {
		return ""
	}
	all, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	split := bytes.Split(bytes.TrimRight(all, "\n"), []byte("\n"))
	if len(split) > lines {
		split = split[len(split)-lines:]
	}
	return fmt.Sprintf("--- last lines of %s ---\n%s\n", filepath.Base(p.log), bytes.Join(split, []byte("\n")))
}

// poll calls condition until it is true, fails, or the time is over.
func poll(limit, interval time.Duration, condition func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		done, err := condition()
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

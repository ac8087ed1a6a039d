package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Process is a process that can be ended and started again.
type Process struct {
	command []string
	log     string
	cmd     *exec.Cmd
}

// Command returns the command line.
func (p *Process) Command() []string { return p.command }

// PID returns the process id, or 0 if the process does not run.
func (p *Process) PID() int {
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// LogTail returns the end of the process's output.
func (p *Process) LogTail() string {
	const most = 4 << 10
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// Start starts the process. It ends with this process, or when ctx ends.
func (p *Process) Start(ctx context.Context) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, p.command[0], p.command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.command[0], err)
	}
	p.cmd = cmd
	return nil
}

// Kill ends the process as a crash does.
func (p *Process) Kill() error { return p.stopWith(syscall.SIGKILL) }

// Stop asks the process to end, and waits until it has ended. It does nothing if the process does not run.
func (p *Process) Stop() error { return p.stopWith(syscall.SIGTERM) }

func (p *Process) stopWith(signal syscall.Signal) error {
	if p.cmd == nil {
		return nil
	}
	err := p.cmd.Process.Signal(signal)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	_ = p.cmd.Wait() // the error only reports the signal
	p.cmd = nil
	return err
}

// Pause stops the process with SIGSTOP, and Resume continues it.
func (p *Process) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume continues a paused process.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// NewProcess returns a process that is not part of a control plane. Its output goes to the file log. The caller starts
// and stops it.
func NewProcess(log string, command ...string) *Process { return &Process{log: log, command: command} }

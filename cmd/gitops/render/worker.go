package render

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"
)

// process renders sources of one namespace, one after the other.
type process struct {
	namespace string
	cmd       *exec.Cmd
	input     io.WriteCloser
	output    *io.LimitedReader // limits the answer of one task
	encoder   *gob.Encoder
	decoder   *gob.Decoder
	problems  *boundedBuffer
	expiry    *time.Timer // ends the process; nil while it has a task
}

// endTimeout is how long a process may take to end when it gets no further task.
const endTimeout = time.Second

// take returns an idle process of a namespace, or a new one. A new one replaces those of other namespaces.
func (p *Processes) take(namespace string) (*process, error) {
	p.mu.Lock()
	at := slices.IndexFunc(p.idle, func(w *process) bool { return w.namespace == namespace })
	if at >= 0 {
		w := p.idle[at]
		p.idle = slices.Delete(p.idle, at, at+1)
		p.mu.Unlock()
		w.expiry.Stop()
		return w, nil
	}
	others := p.idle
	p.idle = nil
	p.started++
	p.mu.Unlock()
	for _, w := range others {
		w.expiry.Stop()
		_ = w.end() // it has no task
	}
	return p.start(namespace)
}

// start starts a process.
func (p *Processes) start(namespace string) (*process, error) {
	w := &process{namespace: namespace, problems: &boundedBuffer{max: maxProblem}}
	w.cmd = exec.Command(p.program[0], p.program[1:]...)
	w.cmd.Dir, w.cmd.Env = "/", []string{"GOMEMLIMIT=" + processGoMemory, "GOTRACEBACK=none"}
	w.cmd.Stderr, w.cmd.WaitDelay = w.problems, endTimeout
	in, inErr := w.cmd.StdinPipe()
	out, outErr := w.cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	w.input, w.output = in, &io.LimitedReader{R: out}
	w.encoder, w.decoder = gob.NewEncoder(in), gob.NewDecoder(w.output)
	return w, nil
}

// keep makes a process idle. It ends unless it gets a task soon.
func (p *Processes) keep(w *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, w)
	w.expiry = time.AfterFunc(processIdle, func() {
		p.mu.Lock()
		at := slices.Index(p.idle, w)
		if at >= 0 {
			p.idle = slices.Delete(p.idle, at, at+1)
		}
		p.mu.Unlock()
		if at >= 0 {
			_ = w.end() // it has no task
		}
	})
}

// kill ends the process at once. The caller of end learns it.
func (w *process) kill() { _ = w.cmd.Process.Kill() }

// end waits until the process has ended, which gets no further task.
func (w *process) end() error {
	_ = w.input.Close() // the process may have ended
	late := time.AfterFunc(endTimeout, w.kill)
	defer late.Stop()
	return w.cmd.Wait()
}

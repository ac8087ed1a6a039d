package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"clusterctl/provision/plan"
	"clusterctl/provision/run"
	"clusterctl/provision/step"
)

// progress writes a run's events as they come: JSON, or a line each. Files are
// counted rather than listed; units, which take time, are shown.
type progress struct {
	mu      sync.Mutex
	w       io.Writer
	json    bool
	secrets []string
	start   time.Time
	files   map[string]int
}

func newProgress(w io.Writer, asJSON bool, secrets []string) *progress {
	return &progress{w: w, json: asJSON, secrets: secrets, start: time.Now(), files: map[string]int{}}
}

func (p *progress) say(e run.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.json {
		text, err := json.Marshal(e)
		if err == nil {
			p.write(string(text))
		}
		return
	}
	subject := e.Machine
	if e.Object != nil {
		subject = e.Object.Address
	}
	line := ""
	switch e.Kind {
	case run.EventConnect:
		return
	case run.EventSend:
		line = "sending " + e.Message
	case run.EventStep:
		if e.Change.Kind != "unit" && e.Change.Kind != "etcd" && e.Change.Kind != "package" && e.Change.Kind != "pods" {
			p.files[e.Machine]++
			return
		}
		line = fmt.Sprintf("%s %s  %s", sign(e.Change), e.Change.Name, past(e.Change))
	case run.EventDone:
		line = "done"
		if n := p.files[e.Machine]; n > 0 {
			line = fmt.Sprintf("done, with %d files", n)
		}
		if e.Message != "" {
			line = e.Message
		}
	case run.EventObject:
		line = strings.TrimSpace(fmt.Sprintf("%s %s  %s", e.Object.Kind, e.Object.Name, word(e.Object)))
	default:
		line = e.Message
	}
	p.write(fmt.Sprintf("%6.1fs  %-28s %s", time.Since(p.start).Seconds(), subject, line))
}

func (p *progress) write(line string) {
	for _, s := range p.secrets {
		line = strings.ReplaceAll(line, s, "(sensitive)")
	}
	fmt.Fprintln(p.w, line)
}

func sign(c *step.Change) string { return c.Action }

func past(c *step.Change) string {
	switch {
	case c.Action == step.Delete:
		return "removed"
	case c.Kind == "unit":
		return "ready"
	}
	return c.Note
}

func word(o *plan.Object) string {
	switch {
	case o.Action == plan.None && o.Note != "":
		return "waiting: " + o.Note
	case o.Action == plan.Create:
		return "created"
	case o.Action == plan.Change && o.Note != "":
		return "changed: " + o.Note
	case o.Action == plan.Change:
		return "changed"
	case o.Action == plan.Remove:
		return "removed"
	}
	return o.Note
}

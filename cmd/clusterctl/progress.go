package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/step"
)

// progressPrinter prints a run's events as JSON, as one line each, or on a terminal in the block of live. Changes of
// files are only counted; units, which take time, are shown.
type progressPrinter struct {
	mu      sync.Mutex
	w       io.Writer
	live    *liveBlock // nil if w is not a terminal
	json    bool
	secrets []string
	start   time.Time
	files   map[string]int
}

func newProgress(w io.Writer, asJSON bool, secrets []string) *progressPrinter {
	return &progressPrinter{w: w, json: asJSON, secrets: secrets, start: time.Now(), files: map[string]int{}}
}

// setSecrets sets the secrets to hide.
func (p *progressPrinter) setSecrets(secrets []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.secrets = secrets
}

func (p *progressPrinter) print(e report.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.json {
		if e.Object != nil {
			masked := (&plan.Plan{Objects: []plan.Object{*e.Object}}).WithoutSecrets(p.secrets)
			e.Object = &masked.Objects[0]
		}
		if e.Change != nil {
			masked := (&plan.Plan{Machines: []plan.Machine{{Changes: []step.Change{*e.Change}}}}).WithoutSecrets(
				p.secrets)
			e.Change = &masked.Machines[0].Changes[0]
		}
		if text, err := json.Marshal(e); err == nil {
			fmt.Fprintln(p.w, config.MaskJSON(string(text), p.secrets))
		}
		return
	}
	subject := e.Machine
	if e.Object != nil {
		subject = e.Object.Address
	}
	line := ""
	show := p.write
	switch e.Kind {
	case report.Connect:
		return
	case report.Begin:
		if p.live != nil {
			p.live.setCurrent(subject, e.Message)
		}
		return
	case report.Send:
		line = "sending " + e.Message
		if p.live != nil {
			p.live.setCurrent(subject, line)
			return
		}
	case report.Sending:
		line = describeSending(e)
		if p.live != nil {
			p.live.setCurrent(subject, line)
			return
		}
	case report.Step:
		if p.live != nil {
			if isOnlyCounted(e.Change) {
				p.files[e.Machine]++
			}
			p.live.step(subject, "")
			return
		}
		if isOnlyCounted(e.Change) {
			p.files[e.Machine]++
			return
		}
		line = fmt.Sprintf("%s %s  %s", changeSign(e.Change), cmp.Or(e.Change.Name, e.Change.Kind),
			changeVerb(e.Change))
	case report.Done:
		line = "done"
		if n := p.files[e.Machine]; n > 0 {
			line = "done, with " + plan.Number(n, "file")
		}
		if e.Message != "" {
			line = e.Message
		}
		if p.live != nil {
			show = func(text string) { p.live.finish(subject, p.mask(text)) }
		}
	case report.Object:
		if p.live != nil && e.Object.Action == plan.None && e.Object.Note != "" {
			p.live.setCurrent(subject, objectVerb(e.Object))
			return
		}
		line = strings.TrimSpace(fmt.Sprintf("%s %s  %s", e.Object.Kind, e.Object.Name, objectVerb(e.Object)))
	default:
		line = e.Message
	}
	if p.live != nil && e.Kind != report.Done {
		show = func(text string) { p.live.finish(subject, p.mask(text)) }
		if e.Kind == report.Note || e.Kind == report.Phase {
			show = func(text string) { p.live.changeRow(subject, p.mask(text), func(*liveRow) {}) }
		}
	}
	show(fmt.Sprintf("%6.1fs  %-28s %s", time.Since(p.start).Seconds(), subject, line))
}

// describeSending describes the progress of sending a file to a machine.
func describeSending(e report.Event) string {
	if e.Size == 0 {
		return fmt.Sprintf("sending %s, %d MB so far", e.Message, e.Bytes/1_000_000)
	}
	return fmt.Sprintf("sending %s, %d of %s", e.Message, e.Bytes/1_000_000, formatMegabytes(e.Size))
}

func (p *progressPrinter) write(line string) { fmt.Fprintln(p.w, p.mask(line)) }

// mask hides secrets in texts from machines and the API, removes control characters, and indents continuation lines so
// that they do not look like other lines.
func (p *progressPrinter) mask(line string) string {
	return maskSecrets(config.EscapeIndented(line, "          "), p.secrets)
}

// isOnlyCounted reports whether a change is only counted, because there are many of its kind and they take no time.
func isOnlyCounted(c *step.Change) bool {
	return c.Kind != "unit" && c.Kind != "etcd" && c.Kind != "package" && c.Kind != "pods"
}

func changeSign(c *step.Change) string { return c.Action }

func changeVerb(c *step.Change) string {
	switch {
	case c.Action == step.Delete && c.Name != "":
		return "removed"
	case c.Kind == "unit":
		return "ready"
	}
	return c.Note
}

func objectVerb(o *plan.Object) string {
	switch {
	case o.Action == plan.None && o.Note != "":
		return "waiting: " + o.Note
	case o.Action == plan.Create:
		return "created"
	case o.Action == plan.Change && o.Note != "":
		return "changed: " + o.Note
	case o.Action == plan.Change:
		return "changed"
	case o.Action == plan.Remove && o.Note != "" && o.Note != "removed":
		return "removed, " + o.Note
	case o.Action == plan.Remove:
		return "removed"
	case o.Action == plan.Replace:
		return "replaced: " + o.Note
	case o.Action == plan.Refused:
		return "refused: " + o.Note
	}
	return o.Note
}

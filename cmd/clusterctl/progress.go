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

// progressPrinter prints a run's events as JSON, as one line each, or on a terminal in the liveBlock. Changes of
// files are only counted. Changes of units, which take time, are shown.
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

// print prints an event.
func (p *progressPrinter) print(e report.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.json {
		p.printJSON(e)
		return
	}
	subject := e.Machine
	if e.Object != nil {
		subject = e.Object.Address
	}
	line, shown := "", false
	if p.live != nil {
		line, shown = p.liveLine(e, subject)
	} else {
		line, shown = p.plainLine(e)
	}
	if !shown {
		return
	}
	text := fmt.Sprintf("%6.1fs  %-28s %s", time.Since(p.start).Seconds(), subject, line)
	switch {
	case p.live == nil:
		p.write(text)
	case e.Kind == report.Note || e.Kind == report.Phase:
		p.live.changeRow(subject, p.mask(text), func(*liveRow) {})
	default:
		p.live.finish(subject, p.mask(text))
	}
}

// printJSON prints an event as a line of JSON.
func (p *progressPrinter) printJSON(e report.Event) {
	if e.Object != nil {
		masked := (&plan.Plan{Objects: []plan.Object{*e.Object}}).WithoutSecrets(p.secrets)
		e.Object = &masked.Objects[0]
	}
	if e.Change != nil {
		masked := (&plan.Plan{Machines: []plan.Machine{{Changes: []step.Change{*e.Change}}}}).WithoutSecrets(p.secrets)
		e.Change = &masked.Machines[0].Changes[0]
	}
	if text, err := json.Marshal(e); err == nil {
		fmt.Fprintln(p.w, config.MaskJSON(string(text), p.secrets))
	}
}

// plainLine returns the line of an event where there is no live block. It reports whether the event has one.
func (p *progressPrinter) plainLine(e report.Event) (line string, shown bool) {
	switch e.Kind {
	case report.Connect, report.Begin:
		return "", false
	case report.Send:
		return "sending " + e.Message, true
	case report.Sending:
		return describeSending(e), true
	case report.Step:
		if isOnlyCounted(e.Change) {
			p.files[e.Machine]++
			return "", false
		}
		return fmt.Sprintf("%s %s  %s", changeSign(e.Change), cmp.Or(e.Change.Name, e.Change.Kind),
			changeVerb(e.Change)), true
	case report.Done:
		return p.doneLine(e), true
	case report.Object:
		return objectLine(e.Object), true
	}
	return e.Message, true
}

// liveLine shows an event in the row of its subject in the live block, or returns the line that is printed above the
// block.
func (p *progressPrinter) liveLine(e report.Event, subject string) (line string, shown bool) {
	switch e.Kind {
	case report.Connect:
		return "", false
	case report.Begin:
		p.live.setCurrent(subject, e.Message)
		return "", false
	case report.Send:
		p.live.setCurrent(subject, "sending "+e.Message)
		return "", false
	case report.Sending:
		p.live.setCurrent(subject, describeSending(e))
		return "", false
	case report.Step:
		if isOnlyCounted(e.Change) {
			p.files[e.Machine]++
		}
		p.live.step(subject, "")
		return "", false
	case report.Done:
		return p.doneLine(e), true
	case report.Object:
		if e.Object.Action == plan.None && e.Object.Note != "" {
			p.live.setCurrent(subject, objectVerb(e.Object))
			return "", false
		}
		return objectLine(e.Object), true
	}
	return e.Message, true
}

// doneLine returns the line of a machine that is done.
func (p *progressPrinter) doneLine(e report.Event) string {
	switch n := p.files[e.Machine]; {
	case e.Message != "":
		return e.Message
	case n > 0:
		return "done, with " + plan.Number(n, "file")
	}
	return "done"
}

// objectLine returns the line of an object.
func objectLine(o *plan.Object) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s  %s", o.Kind, o.Name, objectVerb(o)))
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

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
)

// live is a block of lines at the bottom of a terminal, one for each machine or object in progress, which is redrawn in
// place. Finished ones scroll by above it.
type live struct {
	mu    sync.Mutex
	w     io.Writer
	size  func() (width, height int)
	now   func() time.Time
	color bool

	rows    []*row
	drawn   int // number of the block's lines on the screen
	stop    chan struct{}
	stopped chan struct{}
}

// row is one machine or object.
type row struct {
	subject string
	since   time.Time
	steps   []string // the steps to do, in order
	done    int
	doing   string // text shown instead of the next step
}

// newLive returns a block for a terminal, or nil if w is not a terminal that can be redrawn.
func newLive(w io.Writer, color bool) *live {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	size := func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width < 20 || height < 5 {
			return 80, 24
		}
		return width, height
	}
	return &live{w: w, color: color, size: size, now: time.Now}
}

// begin shows the machines of a plan, and keeps redrawing their elapsed times.
func (l *live) begin(p *plan.Plan) {
	l.mu.Lock()
	for _, m := range p.Machines {
		if m.Action == plan.None || m.Action == plan.Move {
			continue
		}
		r := &row{subject: m.Address, since: l.now()}
		for _, c := range m.Changes {
			r.steps = append(r.steps, strings.TrimSpace(c.Kind+" "+c.Name))
		}
		l.rows = append(l.rows, r)
	}
	l.draw("")
	l.mu.Unlock()
	l.stop, l.stopped = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(l.stopped)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.mu.Lock()
				l.draw("")
				l.mu.Unlock()
			case <-l.stop:
				return
			}
		}
	}()
}

// end removes the block.
func (l *live) end() {
	if l == nil || l.stop == nil {
		return
	}
	close(l.stop)
	<-l.stopped
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = nil
	l.draw("")
}

// step counts a finished step of a row, doing sets the text shown for it, and finish removes it. If line is not empty,
// it is printed above the block.
func (l *live) step(subject, line string) {
	l.change(subject, line, func(r *row) { r.done++; r.doing = "" })
}
func (l *live) doing(subject, what string) {
	l.change(subject, "", func(r *row) { r.doing = what })
}
func (l *live) finish(subject, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = slices.DeleteFunc(l.rows, func(r *row) bool { return r.subject == subject })
	l.draw(line)
}

func (l *live) change(subject, line string, f func(*row)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.rows, func(r *row) bool { return r.subject == subject })
	if i < 0 {
		i = len(l.rows)
		l.rows = append(l.rows, &row{subject: subject, since: l.now()})
	}
	f(l.rows[i])
	l.draw(line)
}

// draw prints line above the block and redraws the block. The caller holds l.mu.
func (l *live) draw(line string) {
	out := &strings.Builder{}
	if l.drawn > 0 {
		fmt.Fprintf(out, "\x1b[%dA\x1b[J", l.drawn)
	}
	if line != "" {
		out.WriteString(line + "\n")
	}
	width, height := l.size()
	shown := min(len(l.rows), max(height/2, 1))
	for _, r := range l.rows[:shown] {
		text := cut(
			config.PlainLine(fmt.Sprintf("%6.1fs  %-28s %s", l.now().Sub(r.since).Seconds(), r.subject, r.state())),
			width-1,
		)
		if l.color {
			text = "\x1b[2m" + text + "\x1b[0m"
		}
		out.WriteString(text + "\n")
	}
	l.drawn = shown
	if more := len(l.rows) - shown; more > 0 {
		fmt.Fprintf(out, "         … and %d more\n", more)
		l.drawn++
	}
	_, _ = io.WriteString(l.w, out.String()) // a closed terminal must not stop the run
}

func (r *row) state() string {
	if r.doing != "" {
		return r.doing
	}
	if r.done < len(r.steps) {
		return fmt.Sprintf("%d/%d  %s", r.done+1, len(r.steps), r.steps[r.done])
	}
	return "finishing"
}

func cut(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}

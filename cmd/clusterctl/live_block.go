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

// liveBlock is a block of lines at the bottom of a terminal, one for each machine or object in progress, which is
// redrawn in place. Finished ones scroll by above it.
type liveBlock struct {
	mu    sync.Mutex
	w     io.Writer
	size  func() (width, height int)
	now   func() time.Time
	color bool

	rows       []*liveRow
	drawnLines int // number of the block's lines on the screen
	stop       chan struct{}
	stopped    chan struct{}
}

// liveRow is one machine or object.
type liveRow struct {
	subject string
	since   time.Time
	steps   []string // the steps to do, in order
	done    int
	current string // text shown instead of the next step
}

// newLiveBlock returns a block for a terminal, or nil if w is not a terminal that can be redrawn.
func newLiveBlock(w io.Writer, color bool) *liveBlock {
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
	return &liveBlock{w: w, color: color, size: size, now: time.Now}
}

// show shows the machines of a plan, and keeps redrawing their elapsed times.
func (l *liveBlock) show(p *plan.Plan) {
	l.mu.Lock()
	for _, m := range p.Machines {
		if m.Action == plan.None || m.Action == plan.Move {
			continue
		}
		r := &liveRow{subject: m.Address, since: l.now()}
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

// remove removes the block.
func (l *liveBlock) remove() {
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
func (l *liveBlock) step(subject, line string) {
	l.changeRow(subject, line, func(r *liveRow) { r.done++; r.current = "" })
}
func (l *liveBlock) setCurrent(subject, what string) {
	l.changeRow(subject, "", func(r *liveRow) { r.current = what })
}
func (l *liveBlock) finish(subject, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = slices.DeleteFunc(l.rows, func(r *liveRow) bool { return r.subject == subject })
	l.draw(line)
}

func (l *liveBlock) changeRow(subject, line string, f func(*liveRow)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.rows, func(r *liveRow) bool { return r.subject == subject })
	if i < 0 {
		i = len(l.rows)
		l.rows = append(l.rows, &liveRow{subject: subject, since: l.now()})
	}
	f(l.rows[i])
	l.draw(line)
}

// draw prints line above the block and redraws the block. The caller holds l.mu.
func (l *liveBlock) draw(line string) {
	out := &strings.Builder{}
	if l.drawnLines > 0 {
		fmt.Fprintf(out, "\x1b[%dA\x1b[J", l.drawnLines)
	}
	if line != "" {
		out.WriteString(line + "\n")
	}
	width, height := l.size()
	shown := min(len(l.rows), max(height/2, 1))
	for _, r := range l.rows[:shown] {
		text := cutText(config.EscapeLine(fmt.Sprintf("%6.1fs  %-28s %s", l.now().Sub(r.since).Seconds(), r.subject,
			r.describe())), width-1)
		if l.color {
			text = "\x1b[2m" + text + "\x1b[0m"
		}
		out.WriteString(text + "\n")
	}
	l.drawnLines = shown
	if more := len(l.rows) - shown; more > 0 {
		fmt.Fprintf(out, "         … and %d more\n", more)
		l.drawnLines++
	}
	_, _ = io.WriteString(l.w, out.String()) // a closed terminal must not stop the run
}

func (r *liveRow) describe() string {
	if r.current != "" {
		return r.current
	}
	if r.done < len(r.steps) {
		return fmt.Sprintf("%d/%d  %s", r.done+1, len(r.steps), r.steps[r.done])
	}
	return "finishing"
}

func cutText(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}

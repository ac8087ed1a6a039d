package plan

import (
	_ "embed" // the style sheet is a file
	"fmt"
	"html"
	"io"
	"net/url"
	"strings"

	"clusterctl/hcl/config"
)

//go:embed page.css
var pageStyle string

// Page writes the plan as a self-contained HTML page: the order of the stages, and each change. It never shows secrets.
func (p *Plan) Page(w io.Writer, secrets []string) error {
	p = p.WithoutSecrets(secrets)
	var out page
	out.head(p.Cluster)
	out.print(`<h1>Plan for cluster %s</h1>`+"\n", p.Cluster)
	out.print(`<p class="summary">%s</p>`+"\n", p.Summary())
	out.printSet(`<p>%s</p>`, p.factLines())
	out.print("\n")
	out.notes(p.notes())
	out.stages(p)
	out.machines(p.Machines)
	out.rotations(p.Rotations)
	out.objects(p.Objects)
	out.print("</html>\n")
	for _, secret := range secrets {
		secrets = append(secrets, html.EscapeString(secret)) // as the page contains it
	}
	_, err := io.WriteString(w, config.Mask(out.text.String(), secrets))
	return err
}

// page is an HTML page being written. It does not use html/template, because that package makes the linker keep every
// exported method of every type in the program.
type page struct{ text strings.Builder }

// print writes markup with %s for values. Values are escaped for text and for quoted attributes.
func (p *page) print(format string, values ...string) {
	escaped := make([]any, len(values))
	for i, value := range values {
		escaped[i] = html.EscapeString(value)
	}
	fmt.Fprintf(&p.text, format, escaped...)
}

// printSet prints one value, or nothing if the value is empty.
func (p *page) printSet(format, value string) {
	if value != "" {
		p.print(format, value)
	}
}

func (p *page) head(cluster string) {
	p.print(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Plan for %s</title>
`, cluster)
	p.text.WriteString("<style>\n" + pageStyle + "</style>\n")
}

func (p *page) notes(notes []string) {
	if len(notes) > 0 {
		p.print("<h2>Notes</h2><ul>")
		for _, note := range notes {
			p.print("<li>%s</li>", note)
		}
		p.print("</ul>")
	}
	p.print("\n")
}

func (p *page) stages(plan *Plan) {
	if len(plan.Stages) > 0 {
		actions := map[string]string{}
		for _, m := range plan.Machines {
			actions[m.Address] = m.Action
		}
		p.print("<h2>Order of the changes</h2>\n" + `<ol class="order">`)
		for _, s := range plan.Stages {
			class := ""
			if s.InParallel {
				class = ` class="beside"`
			}
			p.print("\n<li"+class+">%s", s.Title)
			p.printSet(` <span class="how">(%s)</span>`, s.describeParallelism())
			p.print("<div>")
			for _, address := range s.Machines {
				p.print(`<a class="box %s" href="#%s">%s</a>`, actions[address], url.PathEscape(anchor(address)),
					address)
			}
			p.print("</div></li>")
		}
		p.print("\n</ol>")
	}
	p.print("\n")
}

func (p *page) machines(machines []Machine) {
	title := "<h2>Machines</h2>"
	for _, m := range machines {
		if m.Action == None {
			continue
		}
		p.print(
			title+"\n"+`<details class="%s" id="%s"><summary><code>%s</code> %s <span class="note">%s</span></summary>`+"\n",
			m.Action,
			anchor(m.Address),
			m.Address,
			m.Action,
			m.Note,
		)
		title = ""
		p.printSet(`<p class="loss">%s</p>`, m.Loss)
		p.printSet(`<pre>%s</pre>`, m.LastFailure)
		for _, c := range m.Changes {
			p.print(`<div><code>%s %s %s</code> <span class="note">%s</span></div>`, string(c.Action), c.Kind, c.Name,
				c.Note)
			p.diff(c.Diff)
		}
		p.print("\n</details>")
	}
	p.print("\n")
}

func (p *page) rotations(rotations []Rotation) {
	if len(rotations) > 0 {
		p.print("<h2>Authorities and keys</h2><ul>")
		for _, r := range rotations {
			p.print(`<li><code>%s</code> <span class="note">%s</span></li>`, r.Name, r.Note)
		}
		p.print("</ul>")
	}
	p.print("\n")
}

func (p *page) objects(objects []Object) {
	title := "<h2>Objects</h2>"
	for _, o := range objects {
		if o.Action == None && o.Note == "" {
			continue
		}
		p.print(
			title+"\n"+`<details class="%s"><summary><code>%s</code> %s %s %s <span class="note">%s</span></summary>`+"\n",
			o.Action,
			o.Address,
			o.Action,
			o.Kind,
			o.Name,
			o.Note,
		)
		title = ""
		p.printSet(`<p class="loss">%s</p>`, o.Loss)
		p.diff(o.Diff)
		p.print("\n</details>")
	}
	p.print("\n")
}

// diff writes the lines of a difference, with classes for added and removed lines.
func (p *page) diff(lines []string) {
	if len(lines) == 0 {
		return
	}
	p.print("<pre>")
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "+"):
			p.print(`<span class="plus">%s</span>`, line)
		case strings.HasPrefix(line, "-"):
			p.print(`<span class="minus">%s</span>`, line)
		default:
			p.print("%s", line)
		}
		p.print("\n")
	}
	p.print("</pre>")
}

// anchor returns the HTML id of a machine's section.
func anchor(address string) string { return "of-" + address }

// describeParallelism describes how many machines of a stage are processed at the same time.
func (s Stage) describeParallelism() string {
	switch n := len(s.Machines); {
	case s.Objects > 0:
		return Number(s.Objects, "object")
	case n < 2:
		return ""
	case s.Parallelism == 0 || s.Parallelism >= n:
		return "all at once"
	case s.Parallelism == 1:
		return "one after the other"
	default:
		return fmt.Sprintf("%d at a time", s.Parallelism)
	}
}

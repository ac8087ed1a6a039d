package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/step"
)

// Style is how a plan is printed.
type Style struct {
	Color   bool
	Secrets []string // never shown
	Verbose bool     // list every file of a machine that is created
}

// Print writes a plan as text for users.
func (p *Plan) Print(w io.Writer, s Style) error {
	p = p.WithoutSecrets(s.Secrets).withoutControls()
	out := &strings.Builder{}
	if p.ProgramSentTo != "" {
		out.WriteString(p.ProgramSentTo + "\n\n")
	}
	machines := out.Len()
	for _, m := range p.Machines {
		if m.Action == None {
			continue
		}
		printHeading(out, s, m.Address, m.Action, m.Note)
		for text := range strings.Lines(m.LastFailure) {
			out.WriteString("      " + strings.TrimRight(text, "\n") + "\n")
		}
		changes := m.Changes
		if m.Action == Create && !s.Verbose {
			changes = foldChanges(changes)
		}
		for _, c := range changes {
			printLine(out, s, c.Action, fmt.Sprintf("%-9s %s", c.Kind, joinNote(c.Name, c.Note)))
			for _, d := range c.Diff {
				out.WriteString("      " + d + "\n")
			}
		}
	}
	for _, r := range p.Rotations {
		printHeading(out, s, "certificates "+r.Name, cmp.Or(r.Action, "wait"), r.Note)
	}
	printed := ""
	for _, o := range groupObjects(p.Objects) {
		if key := o.Address + o.Action; key != printed {
			printHeading(out, s, o.Address, o.Action, o.Note)
			printed = key
		}
		printLine(out, s, actionSigns[o.Action], o.Kind+" "+o.Name)
		if o.Loss != "" {
			out.WriteString("      " + o.Loss + ": apply wants -allow-data-loss '" + o.Address + "'\n")
		}
		for _, d := range o.Diff {
			out.WriteString("      " + d + "\n")
		}
	}
	for _, o := range p.Objects {
		if o.Action == None && o.Note != "" {
			printHeading(out, s, o.Address, "", o.Kind+" "+o.Name+" "+o.Note)
		}
	}
	if out.Len() > machines {
		out.WriteString("\n")
	}
	for _, warning := range p.notes() {
		out.WriteString("Note: " + warning + "\n")
	}
	if facts := p.factLines(); facts != "" {
		out.WriteString(facts + "\n")
	}
	out.WriteString(p.Summary() + "\n")
	_, err := io.WriteString(w, config.Mask(out.String(), s.Secrets))
	return err
}

// factLines returns the lines about the store and the certificates.
func (p *Plan) factLines() string {
	var facts []string
	for _, f := range []string{p.Etcd, p.Certificates, p.Snapshot} {
		if f != "" {
			facts = append(facts, f)
		}
	}
	return strings.Join(facts, " ")
}

// notes returns the warnings if the plan has changes, because they may affect the outcome. It always returns the
// changes that wait for their window.
func (p *Plan) notes() []string {
	if p.IsEmpty() && !p.IsPending {
		return p.WaitingChanges
	}
	return append(slices.Clone(p.Warnings), p.WaitingChanges...)
}

// Number returns a number with its noun: 1 machine, 2 machines.
func Number(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Summary returns the last line of the printed plan.
func (p *Plan) Summary() string {
	if n, _ := p.Count(Skipped); p.IsEmpty() && !p.IsPending && n > 0 {
		return "No changes in what was looked at, which is as declared. " + Number(n,
			"machine") + " skipped, not reached."
	}
	if p.IsEmpty() && !p.IsPending && p.IsPartial {
		return "No changes in what is selected, which is as declared. What -target or -exclude leaves out was not " +
			"looked at."
	}
	if p.IsEmpty() && !p.IsPending {
		return "No changes. The machines and what runs on them are as declared."
	}
	var parts []string
	for _, a := range []string{Create, Change, Remove, Replace, Move, Forget} {
		if n, _ := p.Count(a); n > 0 || a != Replace && a != Move && a != Forget {
			parts = append(parts, fmt.Sprintf("%d to %s", n, a))
		}
	}
	text := "Plan: " + strings.Join(parts, ", ")
	parts = nil
	for _, a := range []string{Create, Change, Remove, Replace, Forget} {
		if _, n := p.Count(a); n > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n, a))
		}
	}
	if p.AwaitedObjects > 0 {
		parts = append(parts, fmt.Sprintf("%d to create", p.AwaitedObjects))
	}
	if _, n := p.Count(Refused); n > 0 {
		parts = append(parts, fmt.Sprintf("%d refused by the API", n))
	}
	if len(parts) > 0 {
		text += "; objects: " + strings.Join(parts, ", ")
	}
	if n := len(slices.DeleteFunc(slices.Clone(p.Rotations),
		func(r Rotation) bool { return r.Action == None })); n > 0 {
		text += fmt.Sprintf("; authorities and keys: %d to replace", n)
	}
	if p.CompareError != "" {
		text += "; objects not compared, so that nothing is known of them"
	}
	if n, _ := p.Count(Skipped); n > 0 {
		text += "; " + Number(n, "machine") + " skipped, not reached"
	}
	if n := len(p.Unreached()); n > 0 {
		text += "; " + Number(n, "machine") + " not reached, of which nothing is known"
	}
	return text + "."
}

// groupObjects returns the objects that change, grouped by address and action.
func groupObjects(objects []Object) (list []Object) {
	byKey := map[string][]Object{}
	var order []string
	for _, o := range objects {
		if o.Action == None {
			continue
		}
		key := o.Address + o.Action
		if byKey[key] == nil {
			order = append(order, key)
		}
		byKey[key] = append(byKey[key], o)
	}
	for _, key := range order {
		// Only one object of the group may have a note, such as that a workload's pods roll. It becomes the note of the
		// group.
		group := byKey[key]
		for _, o := range group {
			if o.Note != "" {
				group[0].Note = o.Note
				break
			}
		}
		list = append(list, group...)
	}
	return list
}

var (
	actionSigns = map[string]string{Create: "+", Change: "~", Remove: "-", Replace: "-/+", Refused: "!"}
	signColors  = map[string]string{"+": "\x1b[32m", "~": "\x1b[33m", "-": "\x1b[31m"}
)

func printHeading(out *strings.Builder, s Style, address, action, note string) {
	label := address
	if s.Color {
		label = "\x1b[1m" + address + "\x1b[0m"
	}
	text := fmt.Sprintf("%s%s  %-8s  %s", label, strings.Repeat(" ", max(0, 30-len(address))), action, note)
	out.WriteString(strings.TrimRight(text, " ") + "\n")
}

func printLine(out *strings.Builder, s Style, sign, text string) {
	if s.Color {
		sign = signColors[sign] + sign + "\x1b[0m"
	}
	fmt.Fprintf(out, "  %s %s\n", sign, strings.TrimRight(text, " "))
}

func joinNote(name, note string) string {
	if note == "" {
		return name
	}
	return strings.TrimSpace(name + "  " + note)
}

// foldChanges combines the changes of each kind into one line, because a new machine gets a long list that is much the
// same everywhere.
func foldChanges(changes []step.Change) []step.Change {
	const maximum = 4
	var order []string
	byKind := map[string][]step.Change{}
	for _, c := range changes {
		key := c.Action + c.Kind
		if byKind[key] == nil {
			order = append(order, key)
		}
		byKind[key] = append(byKind[key], c)
	}
	var folded []step.Change
	for _, key := range order {
		list := byKind[key]
		if len(list) == 1 {
			folded = append(folded, list[0])
			continue
		}
		c := step.Change{Action: list[0].Action, Kind: list[0].Kind}
		var names []string
		for i, e := range list {
			c.Bytes += e.Bytes
			if i < maximum {
				names = append(names, e.Name)
			}
		}
		if len(list) > maximum {
			names = append(names, fmt.Sprintf("and %d more", len(list)-maximum))
		}
		c.Name = strings.Join(names, ", ")
		if list[0].Kind == "unit" && list[0].Note != "" {
			c.Note = list[0].Note
		}
		if c.Bytes > 0 {
			c.Note = fmt.Sprintf("%d MB to send", (c.Bytes+999_999)/1_000_000)
		}
		folded = append(folded, c)
	}
	return folded
}

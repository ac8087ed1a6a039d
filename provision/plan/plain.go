package plan

import (
	"slices"

	"clusterctl/hcl/config"
)

// withoutControls returns the plan without terminal control characters. Texts from machines and the API are not
// trusted: one machine or object must not be able to fake lines about others.
func (p *Plan) withoutControls() *Plan {
	copied := *p
	copied.Machines, copied.Objects, copied.Rotations = slices.Clone(p.Machines), slices.Clone(p.Objects), slices.Clone(
		p.Rotations,
	)
	for i := range copied.Machines {
		m := &copied.Machines[i]
		m.Address, m.Note, m.LastFailure = config.EscapeLine(m.Address), config.EscapeIndented(m.Note,
			continuationIndent), config.EscapeControls(m.LastFailure)
		m.Changes = slices.Clone(m.Changes)
		for j := range m.Changes {
			c := &m.Changes[j]
			c.Action, c.Kind, c.Name, c.Note = config.EscapeLine(c.Action), config.EscapeLine(
				c.Kind,
			), config.EscapeLine(c.Name), config.EscapeIndented(c.Note, continuationIndent)
			c.Diff = linesWithoutControls(c.Diff)
		}
	}
	for i := range copied.Objects {
		o := &copied.Objects[i]
		o.Address, o.Kind, o.Name = config.EscapeLine(o.Address), config.EscapeLine(o.Kind), config.EscapeLine(o.Name)
		o.Note, o.Loss, o.Diff = config.EscapeIndented(o.Note, continuationIndent),
			config.EscapeIndented(o.Loss, continuationIndent), linesWithoutControls(o.Diff)
	}
	for i := range copied.Rotations {
		copied.Rotations[i].Note = config.EscapeIndented(copied.Rotations[i].Note, continuationIndent)
	}
	copied.Warnings = slices.Clone(p.Warnings)
	for i, text := range copied.Warnings {
		copied.Warnings[i] = config.EscapeIndented(text, continuationIndent)
	}
	return &copied
}

// continuationIndent is the indentation of continuation lines. It is deeper than that of all lines that state an
// action.
const continuationIndent = "      "

func linesWithoutControls(list []string) []string {
	list = slices.Clone(list)
	for i, text := range list {
		list[i] = config.EscapeLine(text)
	}
	return list
}

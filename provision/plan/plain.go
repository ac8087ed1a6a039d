package plan

import (
	"slices"

	"clusterctl/hcl/config"
)

// plain returns the plan without terminal control characters. Texts from machines and the API are not trusted: one
// machine or object must not be able to fake lines about others.
func (p *Plan) plain() *Plan {
	copied := *p
	copied.Machines, copied.Objects, copied.Rotations = slices.Clone(
		p.Machines,
	), slices.Clone(
		p.Objects,
	), slices.Clone(
		p.Rotations,
	)
	for i := range copied.Machines {
		m := &copied.Machines[i]
		m.Address, m.Note, m.LastTime = config.PlainLine(
			m.Address,
		), config.Indented(
			m.Note,
			deep,
		), config.Plain(
			m.LastTime,
		)
		m.Changes = slices.Clone(m.Changes)
		for j := range m.Changes {
			c := &m.Changes[j]
			c.Action, c.Kind, c.Name, c.Note = config.PlainLine(
				c.Action,
			), config.PlainLine(
				c.Kind,
			), config.PlainLine(
				c.Name,
			), config.Indented(
				c.Note,
				deep,
			)
			c.Diff = plainLines(c.Diff)
		}
	}
	for i := range copied.Objects {
		o := &copied.Objects[i]
		o.Address, o.Kind, o.Name = config.PlainLine(o.Address), config.PlainLine(o.Kind), config.PlainLine(o.Name)
		o.Note, o.Loss, o.Diff = config.Indented(o.Note, deep), config.Indented(o.Loss, deep), plainLines(o.Diff)
	}
	for i := range copied.Rotations {
		copied.Rotations[i].Note = config.Indented(copied.Rotations[i].Note, deep)
	}
	copied.Warnings = slices.Clone(p.Warnings)
	for i, text := range copied.Warnings {
		copied.Warnings[i] = config.Indented(text, deep)
	}
	return &copied
}

// deep is the indentation of continuation lines. It is deeper than that of all lines that state an action.
const deep = "      "

func plainLines(list []string) []string {
	list = slices.Clone(list)
	for i, text := range list {
		list[i] = config.PlainLine(text)
	}
	return list
}

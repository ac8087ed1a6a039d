package plan

import (
	"slices"
	"strings"

	"clusterctl/hcl/config"
)

// Masked returns the plan as it may be shown. A line with a secret on either side of a
// change shows neither: the other side is what the secret was, or will be.
func (p *Plan) Masked(secrets []string) *Plan {
	if len(secrets) == 0 {
		return p
	}
	masked := *p
	masked.Machines, masked.Objects = slices.Clone(p.Machines), slices.Clone(p.Objects)
	for i := range masked.Machines {
		m := &masked.Machines[i]
		m.Changes = slices.Clone(m.Changes)
		for j := range m.Changes {
			m.Changes[j].Diff = maskLines(m.Changes[j].Diff, secrets)
		}
	}
	for i := range masked.Objects {
		masked.Objects[i].Diff = maskFields(masked.Objects[i].Diff, secrets)
	}
	return &masked
}

// maskFields hides both sides of "path: old → new".
func maskFields(diff, secrets []string) []string {
	diff = slices.Clone(diff)
	for i, line := range diff {
		path, change, ok := strings.Cut(line, ": ")
		if !ok {
			continue
		}
		sides := append(strings.Split(change, " → "), change)
		if slices.ContainsFunc(sides, func(side string) bool { return config.HasSecret(side, secrets) }) {
			diff[i] = path + ": " + config.Hidden + " → " + config.Hidden
		}
	}
	return diff
}

// maskLines hides the lines of a file's change, when a secret is in one of them: which of
// those taken out was the secret is not known.
func maskLines(diff, secrets []string) []string {
	if !slices.ContainsFunc(
		diff,
		func(line string) bool { return config.HasSecret(strings.TrimLeft(line, "+- "), secrets) },
	) {
		return diff
	}
	diff = slices.Clone(diff)
	for i, line := range diff {
		if strings.HasPrefix(line, "+ ") || strings.HasPrefix(line, "- ") {
			diff[i] = line[:2] + config.Hidden
		}
	}
	return diff
}

package plan

import (
	"slices"
	"strings"

	"clusterctl/hcl/config"
)

// WithoutSecrets returns the plan without secrets. A change with a secret on one side shows neither side, because the
// other side is the former or the next secret.
func (p *Plan) WithoutSecrets(secrets []string) *Plan {
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

// maskFields hides both sides of lines such as "path: old → new" that contain a secret.
func maskFields(diff, secrets []string) []string {
	diff = slices.Clone(diff)
	for i, line := range diff {
		path, change, ok := strings.Cut(line, ": ")
		if !ok {
			continue
		}
		sides := append(strings.Split(change, " → "), change)
		if slices.ContainsFunc(sides, func(side string) bool { return config.HasSecret(side, secrets) }) {
			diff[i] = path + ": " + config.HiddenText + " → " + config.HiddenText
		}
	}
	return diff
}

// maskLines hides all changed lines of a file if one of them contains a secret, because it is unknown which removed
// lines are the former secret.
func maskLines(diff, secrets []string) []string {
	if !slices.ContainsFunc(diff,
		func(line string) bool { return config.HasSecret(strings.TrimLeft(line, "+- "), secrets) }) {
		return diff
	}
	diff = slices.Clone(diff)
	for i, line := range diff {
		if strings.HasPrefix(line, "+ ") || strings.HasPrefix(line, "- ") {
			diff[i] = line[:2] + config.HiddenText
		}
	}
	return diff
}

package plan_test

import (
	"strings"
	"testing"

	"clusterctl/provision/plan"
	"clusterctl/provision/step"
)

// A user who controls a machine or can write an object cannot forge lines of the plan.
func TestTextsInAPlanCannotForgeLines(t *testing.T) {
	const forged = "x\x1b[1A\u009b2K\nworkload.db                   remove\n  - Deployment shop/db\nPlan: 0 to " +
		"create, 0 to change, 0 to remove."
	p := plan.Plan{
		Machines: []plan.Machine{{Address: "machine.a", Action: plan.Change, Note: forged, LastFailure: forged,
			Changes: []step.Change{{Action: "~", Kind: forged, Name: forged, Note: forged, Diff: []string{forged}}}}},
		Objects: []plan.Object{
			{
				Address: "workload.web",
				Kind:    forged,
				Name:    forged,
				Action:  plan.Change,
				Note:    forged,
				Loss:    forged,
				Diff:    []string{"metadata.annotations.a: " + forged},
			},
			{Address: "workload.api", Kind: "Deployment", Name: "shop/api", Note: forged},
		},
		Rotations: []plan.Rotation{{Name: "ca", Note: forged}},
		Warnings:  []string{forged},
	}
	var out strings.Builder
	if err := p.Print(&out, plan.Style{}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\u009b") {
		t.Errorf("it commands the terminal:\n%q", out.String())
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "workload.db") || strings.HasPrefix(line, "  - Deployment") ||
			strings.HasPrefix(line, "Plan: 0 to create, 0 to change, 0 to remove.") {
			t.Errorf("forged: %s", line)
		}
	}
}

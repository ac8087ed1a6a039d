package plan_test

import (
	"slices"
	"testing"

	"clusterctl/provision/plan"
	"clusterctl/provision/step"
)

func TestSensitiveBooleansAreHiddenOnlyAsWholeValues(t *testing.T) {
	p := &plan.Plan{Objects: []plan.Object{{Diff: []string{"spec.on: false → true", `data.text: "x" → "it is true"`}}}}
	if got := p.WithoutSecrets([]string{"true"}).Objects[0].Diff; !slices.Equal(got,
		[]string{"spec.on: (sensitive) → (sensitive)", `data.text: "x" → "it is true"`}) {
		t.Errorf("got %q", got)
	}
}

func TestBothSidesOfAChangedSecretAreHidden(t *testing.T) {
	const hidden = "(sensitive) → (sensitive)"
	secrets := []string{"SWORDFISH9", "42", "a\"long\nkey-that-is-cut"}
	p := &plan.Plan{
		Objects: []plan.Object{{Diff: []string{
			`data.a: "HUNTER2-LONG" → "SWORDFISH9"`, `data.b: "x" → "SWORDFISH9 and more"`, `data.c: "SWORDFISH9" → (none)`,
			`spec.replicas: 41 → 42`, `data.d: "old" → "a\"long\nkey-that…`, `data.e: "x → y" → "142"`,
		}}},
		Machines: []plan.Machine{
			{Changes: []step.Change{{Diff: []string{"- password: OLD", "+ password: SWORDFISH9"}}}},
		},
	}
	masked := p.WithoutSecrets(secrets)
	want := []string{
		"data.a: " + hidden,
		"data.b: " + hidden,
		"data.c: " + hidden,
		"spec.replicas: " + hidden,
		"data.d: " + hidden,
		`data.e: "x → y" → "142"`,
	}
	if got := masked.Objects[0].Diff; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := masked.Machines[0].Changes[0].Diff; !slices.Equal(got, []string{"- (sensitive)", "+ (sensitive)"}) {
		t.Errorf("got %q", got)
	}
	if p.Objects[0].Diff[0] == want[0] {
		t.Error("the plan itself has changed")
	}
}

package run_test

import (
	"errors"
	"strings"
	"testing"

	"clusterctl/provision/state"
)

// P05: a plan whose objects could not be compared says so and fails, rather than that there is nothing to change.
func TestAPlanThatCouldNotCompareObjectsIsNotWhole(t *testing.T) {
	w := newWorld(t, control)
	w.live.objects = []state.Object{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", Address: "object.v1.ConfigMap.a"}, {APIVersion: "v1", Kind: "ConfigMap", Name: "b", Address: "object.v1.ConfigMap.b"}}
	if p := w.mustApply(); !strings.Contains(p.Summary(), "1 to create, 0 to change, 0 to remove; objects: 2 to create") {
		t.Errorf("a new cluster's plan says %q", p.Summary())
	}
	w.live.refused = errors.New("Internal error occurred: failed calling webhook")
	w.engine.Look = true
	p, err := w.engine.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Unreached(); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("the plan is whole: %v", err)
	}
	if text := p.Plan.Summary(); !strings.Contains(text, "objects not compared") {
		t.Errorf("it says %q", text)
	}
}

package run_test

import (
	"slices"
	"strings"
	"testing"

	"clusterctl/provision/plan"
)

// The plan shows a kubeconfig that was edited by hand, and apply restores it after any edit.
// Proves P05.
func TestChangedKubeconfigsAreRestored(t *testing.T) {
	const path = "/etc/kubernetes/proxy.conf"
	for name, change := range map[string]func(string) string{
		"a comment": func(text string) string { return "# mine\n" + text },
		"another user": func(text string) string {
			return strings.Replace(text, "user:", "tokenFile: /tmp/x\n  user:", 1)
		},
		"no TLS": func(text string) string {
			return strings.Replace(text, "server:", "insecure-skip-tls-verify: true\n    server:", 1)
		},
		"something else": func(string) string { return "nothing" },
	} {
		w := newWorld(t, controlMachine, machineA)
		w.mustApply()
		h := w.hosts["machine.a"]
		before, err := h.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := change(string(before))
		if changed == string(before) {
			t.Fatalf("%s: the edit does not change\n%s", name, before)
		}
		if err := h.WriteFile(path, strings.NewReader(changed), 0o600, 0, 0); err != nil {
			t.Fatal(err)
		}
		p := w.mustApply()
		i := slices.IndexFunc(p.Machines, func(m plan.Machine) bool { return m.Address == "machine.a" })
		if i < 0 || len(p.Machines[i].Changes) == 0 || p.Machines[i].Changes[0].Name != path {
			t.Errorf("%s: the plan does not show the file: %v", name, machineActions(p))
		}
		after, err := h.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, foreign := range []string{"mine", "tokenFile", "insecure", "nothing"} {
			if strings.Contains(string(after), foreign) {
				t.Errorf("%s: the file still has %q", name, foreign)
			}
		}
		if p := w.mustApply(); !p.IsEmpty() {
			t.Errorf("%s: the next apply is not empty: %v", name, machineActions(p))
		}
	}
}

// plan and status show files in the folder of static pods that clusterctl did not write, because the kubelet runs them.
// The files stay.
// Proves P05.
func TestForeignStaticPodsAreReported(t *testing.T) {
	const path = "/etc/kubernetes/manifests/theirs.yaml"
	w := newWorld(t, controlMachine, machineA)
	w.mustApply()
	h := w.hosts["machine.a"]
	if err := h.WriteFile(path, strings.NewReader("kind: Pod\n"), 0o644, 0, 0); err != nil {
		t.Fatal(err)
	}
	p := w.mustApply()
	var text strings.Builder
	if err := p.Print(&text, plan.Style{}); err != nil {
		t.Fatal(err)
	}
	if !p.IsEmpty() || !strings.Contains(text.String(), "machine.a: "+path) ||
		!strings.Contains(text.String(), "static pod") {
		t.Errorf("the plan does not report the static pod:\n%s", &text)
	}
	if _, err := h.Stat(path); err != nil {
		t.Errorf("the file was removed: %v", err)
	}
	o, err := w.engine.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, m := range o.Machines {
		if m.Address == "machine.a" {
			found = len(m.Foreign) == 1 && strings.HasPrefix(m.Foreign[0], path)
		} else if len(m.Foreign) > 0 {
			t.Errorf("%s reports foreign files %q, want none", m.Address, m.Foreign)
		}
	}
	if !found {
		t.Errorf("status does not report the file: %+v", o.Machines)
	}
}

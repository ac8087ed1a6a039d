package step_test

import (
	"slices"
	"strings"
	"testing"

	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/step"
)

// A kernel setting gets back the value from before clusterctl changed it, also after several changes. If another
// program has set it since, it stays.
// Proves P07.
func TestKernelSettingsAreRestored(t *testing.T) {
	h := &hostfake.Host{}
	put := func(name, value string) {
		t.Helper()
		if err := h.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), strings.NewReader(value+"\n"), 0o644, 0,
			0); err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string) string {
		text, err := h.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	given := map[string]string{"net.ipv4.ip_forward": "1", "kernel.panic": "10", "vm.overcommit_memory": "1"}
	put("net.ipv4.ip_forward", "0")
	put("kernel.panic", "0")
	put("vm.overcommit_memory", "1") // already the wanted value: it is neither changed nor restored
	set := func() {
		t.Helper()
		for name, value := range given {
			s := &step.Sysctl{Name: name, Value: value}
			if c, err := s.Check(t.Context(), h, &step.Walk{}); err != nil {
				t.Fatal(err)
			} else if c.Action != "" {
				if err := s.Apply(t.Context(), h, &step.Walk{}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	set()
	put("net.ipv4.ip_forward", "5") // by hand; the next apply corrects it
	set()
	put("kernel.panic", "7") // by hand
	back := &step.RestoreSysctls{Changed: given}
	c, err := back.Check(t.Context(), h, &step.Walk{})
	if err != nil || c.Action != step.Update ||
		!slices.Equal(c.Diff, []string{"- net.ipv4.ip_forward = 1", "+ net.ipv4.ip_forward = 0"}) {
		t.Errorf("the plan says %+v, %v", c, err)
	}
	if err := back.Apply(t.Context(), h, &step.Walk{}); err != nil {
		t.Fatal(err)
	}
	if got := get("net.ipv4.ip_forward") + get("kernel.panic") + get("vm.overcommit_memory"); got != "071" {
		t.Errorf("the settings are %s", got)
	}
}

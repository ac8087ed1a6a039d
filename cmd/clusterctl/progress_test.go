package main

import (
	"strings"
	"testing"

	"clusterctl/provision/run/report"
	"clusterctl/provision/step"
)

func TestProgressNamesTheSubjectOfEachStep(t *testing.T) {
	for want, c := range map[string]step.Change{
		"- kubelet.service  removed":     {Action: step.Delete, Kind: "unit", Name: "kubelet.service"},
		"- pods  stop the 3 that run":    {Action: step.Delete, Kind: "pods", Note: "stop the 3 that run"},
		"~ etcd  member joins the store": {Action: step.Update, Kind: "etcd", Note: "member joins the store"},
	} {
		var out strings.Builder
		newProgress(&out, false, nil).print(report.Event{Kind: report.Step, Machine: "machine.a", Change: &c})
		if !strings.HasSuffix(strings.TrimSpace(out.String()), want) {
			t.Errorf("got %q, want …%q", out.String(), want)
		}
	}
}

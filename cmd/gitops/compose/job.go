package compose

import (
	"maps"
	"strconv"
)

// schedule adds a CronJob for each schedule of a job, or a suspended Job if it is started by hand.
func (w *workload) schedule(triggers *attributes) {
	w.pod["restartPolicy"] = "Never"
	job := map[string]any{"template": w.template(), "backoffLimit": int64(0)}
	meta := func(name string) map[string]any {
		m := maps.Clone(w.meta)
		m["name"] = name
		return m
	}
	schedules := triggers.items("schedule")
	isManual := triggers.is("manual")
	for i, s := range schedules {
		name := w.name
		if i > 0 {
			name += "-" + strconv.Itoa(i+1)
		}
		spec := map[string]any{"schedule": s.take("cron"), "concurrencyPolicy": "Forbid",
			"jobTemplate": map[string]any{"spec": job}}
		if zone := s.text("timezone"); zone != "" {
			spec["timeZone"] = zone
		}
		if s.fields["concurrency"] == "forbid" {
			s.drop("concurrency")
		} else if s.fields["concurrency"] != nil {
			s.refuse("concurrency", "a CronJob does not queue runs: it leaves one out while another runs")
		}
		if s.text("missed_fires") == "skip" {
			spec["startingDeadlineSeconds"] = int64(60)
		}
		s.reportRest()
		w.add(s.path, map[string]any{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta(name), "spec": spec})
	}
	if len(schedules) == 0 && isManual {
		job["suspend"] = true
		w.add(w.path, map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": meta(w.name), "spec": job})
	}
	triggers.reportRest()
}

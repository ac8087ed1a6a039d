package compose

import (
	"strings"
)

// deploy converts how a service is deployed.
func (w *workload) deploy(c map[string]any) {
	d := w.below("deploy")
	replicas := int64(1)
	for _, v := range []any{w.take("scale"), d.take("replicas")} {
		if v != nil {
			replicas = number(v)
		}
	}
	mode := d.text("mode")
	switch mode {
	case "", "replicated":
		w.spec["replicas"] = replicas
	case "global":
		w.kind = "DaemonSet"
	case "replicated-job":
		w.kind = "Job"
		w.spec["completions"], w.spec["parallelism"] = replicas, replicas
	default:
		d.report("mode", "Kubernetes has no %s; the service becomes a Job of one pod", mode)
		w.kind = "Job"
	}
	if endpoint := d.text("endpoint_mode"); endpoint == "dnsrr" {
		w.headless = true
	}
	annotated(w.meta, pairs(d.take("labels")))
	w.restarts(&d)
	w.placement(&d)
	resources := d.below("resources")
	for from, to := range map[string]string{"limits": "limits", "reservations": "requests"} {
		list := resources.below(from)
		setResource(c, to, "cpu", cpu(list.take("cpus")))
		setResource(c, to, "memory", memory(list.take("memory")))
		list.reportRest()
	}
	resources.reportRest()
	w.rollout(&d)
	d.reportRest()
}

// restarts converts when containers are restarted. Deployments and DaemonSets restart them always.
func (w *workload) restarts(d *attributes) {
	policy := d.below("restart_policy")
	condition, attribute, a := asText(policy.fields["condition"]), "condition", &policy
	if condition == "" {
		condition, attribute, a = asText(w.fields["restart"]), "restart", &w.attributes
		condition, _, _ = strings.Cut(condition, ":") // on-failure may have a number of attempts
	}
	if w.kind != "Job" {
		if condition != "" && condition != "any" && condition != "always" && condition != "unless-stopped" {
			a.report(attribute, "a %s restarts its containers always, not %q", w.kind, condition)
		}
	} else {
		w.pod["restartPolicy"] = "OnFailure"
		if condition == "none" || condition == "no" {
			w.pod["restartPolicy"], w.spec["backoffLimit"] = "Never", int64(0)
		} else if condition != "" && condition != "on-failure" {
			a.report(attribute, "a Job restarts its containers on failure, not %q", condition)
		}
		if v := policy.take("max_attempts"); v != nil {
			w.spec["backoffLimit"] = number(v)
		}
	}
	policy.drop("condition")
	w.drop("restart")
	policy.reportRest()
}

// placement converts which nodes the pods may have.
func (w *workload) placement(d *attributes) {
	placement := d.below("placement")
	labels := map[string]string{"node.hostname": "kubernetes.io/hostname", "node.platform.os": "kubernetes.io/os",
		"node.platform.arch": "kubernetes.io/arch"}
	var excluded []any
	for _, v := range asList(placement.take("constraints")) {
		name, value, isEqual := strings.Cut(asText(v), "==")
		if !isEqual {
			name, value, _ = strings.Cut(asText(v), "!=")
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		label, isLabel := strings.CutPrefix(name, "node.labels.")
		if own := labels[name]; own != "" {
			label, isLabel = own, true
		}
		switch {
		case !isLabel || value == "":
			placement.report("constraints", "nodes have no label for %q", asText(v))
		case isEqual:
			w.selectNodes(label, value)
		default:
			excluded = append(excluded, map[string]any{"key": label, "operator": "NotIn", "values": []any{value}})
		}
	}
	if len(excluded) > 0 {
		w.pod["affinity"] = map[string]any{"nodeAffinity": map[string]any{
			"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
				"nodeSelectorTerms": []any{map[string]any{"matchExpressions": excluded}}}}}
	}
	var spread []any
	for _, preference := range placement.items("preferences") {
		label, isLabel := strings.CutPrefix(asText(preference.fields["spread"]), "node.labels.")
		if isLabel {
			preference.drop("spread")
			spread = append(spread, map[string]any{"maxSkew": int64(1), "topologyKey": label,
				"whenUnsatisfiable": "ScheduleAnyway", "labelSelector": map[string]any{"matchLabels": w.labels()}})
		}
		preference.reportRest()
	}
	if len(spread) > 0 {
		w.pod["topologySpreadConstraints"] = spread
	}
	placement.reportRest()
}

// rollout converts how pods are replaced. Compose replaces parallelism of them at a time, or all if that is 0.
func (w *workload) rollout(d *attributes) {
	if d.fields["update_config"] == nil {
		return
	}
	update := d.below("update_config")
	if w.kind == "Job" {
		d.report("update_config", "the pods of Jobs are not replaced")
		return
	}
	var atOnce any = int64(1)
	if v := update.take("parallelism"); v != nil {
		if atOnce = number(v); number(v) == 0 {
			atOnce = "100%"
		}
	}
	rolling := map[string]any{"maxSurge": int64(0), "maxUnavailable": atOnce}
	if update.text("order") == "start-first" {
		rolling = map[string]any{"maxSurge": atOnce, "maxUnavailable": int64(0)}
	}
	field := map[string]string{"Deployment": "strategy", "DaemonSet": "updateStrategy"}[w.kind]
	w.spec[field] = map[string]any{"type": "RollingUpdate", "rollingUpdate": rolling}
	if v := seconds(update.take("monitor")); v > 0 {
		w.spec["minReadySeconds"] = v
	}
	update.reportRest()
}

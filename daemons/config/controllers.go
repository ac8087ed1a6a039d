package config

import (
	"fmt"
	"slices"
	"strings"
)

// Controllers lists the names of the controllers for --controllers, in the order in which they start. clusterctl uses
// the list to check which controllers a configuration selects.
var Controllers = []string{
	"serviceaccount", "serviceaccount-token", "namespace", "nodecidr", "node", "cloud-node", "taint-eviction",
	"deployment", "replicaset",
	"replicationcontroller", "statefulset", "daemonset", "job", "cronjob", "horizontal-pod-autoscaler", "endpoints",
	"endpointslice", "endpointslice-mirroring", "networkpolicy", "presence", "service", "disruption", "podgc",
	"garbage", "resourcequota", "persistentvolume-binder",
	"directory-provisioner", "ephemeral-volume", "resourceclaim", "device-taint-eviction", "persistentvolume-expander",
	"pvc-protection", "pv-protection", "vac-protection",
	"validatingadmissionpolicy-status",
	"certificate", "certificate-approval", "podcertificaterequest-cleaner", "clusterrole-aggregation", "token-cleaner",
	"bootstrap-signer", "service-cidr",
	"legacy-serviceaccount-token-cleaner", "storage-version-migrator",
}

// ChosenControllers evaluates --controllers: * means all, and -name excludes one.
func ChosenControllers(patterns []string) ([]string, error) {
	var out []string
	for _, p := range patterns {
		isKnown := p == "*"
		for _, name := range Controllers {
			switch p {
			case "*", name:
				isKnown = true
				if !slices.Contains(out, name) {
					out = append(out, name)
				}
			case "-" + name:
				isKnown = true
			}
		}
		if !isKnown {
			return nil, fmt.Errorf("no controller is named %q: write \"*\" for all, NAME, or -NAME to leave one out, "+
				"where NAME is one of %s", p, strings.Join(slices.Sorted(slices.Values(Controllers)), ", "))
		}
	}
	return slices.DeleteFunc(out, func(name string) bool { return slices.Contains(patterns, "-"+name) }), nil
}

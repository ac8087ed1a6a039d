package workload

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// components make objects of their own accord, which people declare to change something about them: a namespace's
// default account, say.
var components = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "metrics-server"}

// foreignError is that an object is there, and is somebody else's.
type foreignError struct{ address, by string }

func (e foreignError) Error() string {
	return fmt.Sprintf(
		"it is there already, made by %s, and was not applied from here. To take it over, write import { to = %s }; "+
			"otherwise give yours another name",
		e.by,
		quoted(e.address),
	)
}

// plain is an address that needs no quotes in a configuration.
var plain = regexp.MustCompile(`^[a-z]+\.[A-Za-z0-9_-]+$`)

func quoted(address string) string {
	if plain.MatchString(address) {
		return address
	}
	return strconv.Quote(address)
}

// known marks what may be applied over what is there: what was applied from here before, and what an import block is
// about.
func known(desired []Desired, c *config.Cluster, before []state.Object) {
	applied := map[state.Object]bool{}
	for _, o := range before {
		applied[o.Identity()] = true
	}
	for i, d := range desired {
		desired[i].Known = d.Keep || d.Source == (config.Source{}) || d.Object.GetKind() == "Node" ||
			applied[d.reference().Identity()] ||
			slices.ContainsFunc(
				c.Imports,
				func(m config.Import) bool { return config.Covers(m.To, d.Address) || m.To == d.Block },
			)
	}
}

// maker says who made an object that is there, when that is somebody else than this program and the cluster itself.
func maker(live *unstructured.Unstructured) string {
	for _, f := range live.GetManagedFields() {
		if slices.Contains(components, f.Manager) && f.Subresource == "" {
			return ""
		}
	}
	return others(live)
}

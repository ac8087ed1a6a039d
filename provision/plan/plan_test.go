package plan_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

const wantPlan = `machine.control["10.0.0.1"]     create    debian 12, 8 cpu, 32 GiB
  + binary    clusterctl, etcd  41 MB to send
  + file      /etc/kubernetes/pki/ca.crt
machine.node["n2"]              change    restart kubelet
  ~ file      /var/lib/kubelet/config.yaml
      - maxPods: 110
      + maxPods: 200
  ~ unit      kubelet.service  restart, for config.yaml
workload.web                    change    roll 3 pods
  ~ ConfigMap shop/web
      data.index.html: (sensitive) → (sensitive)
  ~ Deployment shop/web
      spec.template.spec.containers[web].image: "a" → "b"

etcd: 3 members, survives the loss of 1. Certificates: the next expires in 212 days.
Plan: 1 to create, 1 to change, 0 to remove; objects: 2 to change.
`

// A plan shows for each machine and file what changes, and the reason of restarts.
// Proves P02.
func TestPlansArePrinted(t *testing.T) {
	p := plan.Plan{
		Machines: []plan.Machine{
			{
				Address: `machine.control["10.0.0.1"]`,
				Action:  plan.Create,
				Note:    "debian 12, 8 cpu, 32 GiB",
				Changes: []step.Change{
					{
						Action: "+",
						Kind:   "binary",
						Name:   "clusterctl",
						Bytes:  1_000_000,
					}, {Action: "+", Kind: "binary", Name: "etcd", Bytes: 39_500_000},
					{Action: "+", Kind: "file", Name: "/etc/kubernetes/pki/ca.crt"},
				},
			},
			{Address: `machine.node["n1"]`},
			{Address: `machine.node["n2"]`, Action: plan.Change, Note: "restart kubelet", Changes: []step.Change{
				{
					Action: "~",
					Kind:   "file",
					Name:   "/var/lib/kubelet/config.yaml",
					Diff:   []string{"- maxPods: 110", "+ maxPods: 200"},
				},
				{Action: "~", Kind: "unit", Name: "kubelet.service", Note: "restart, for config.yaml"},
			}},
		},
		Objects: []plan.Object{
			{
				Address: "workload.web",
				Kind:    "ConfigMap",
				Name:    "shop/web",
				Action:  plan.Change,
				Diff:    []string{`data.index.html: "a" → "hunter22"`},
			},
			{Address: "workload.web", Kind: "Service", Name: "shop/web"},
			{
				Address: "workload.web",
				Kind:    "Deployment",
				Name:    "shop/web",
				Action:  plan.Change,
				Note:    "roll 3 pods",
				Diff:    []string{`spec.template.spec.containers[web].image: "a" → "b"`},
			},
		},
		Etcd:         "etcd: 3 members, survives the loss of 1.",
		Certificates: plan.DescribeCertificates(time.Unix(0, 0).Add(212*24*time.Hour+time.Hour), time.Unix(0, 0)),
	}
	var out strings.Builder
	if err := p.Print(&out, plan.Style{Secrets: []string{"hunter22"}}); err != nil {
		t.Fatal(err)
	}
	if out.String() != wantPlan {
		t.Errorf("got:\n%s", out.String())
	}
}

// The size of the nodes' parts of the pod network cannot change, because parts of another size would overlap those that
// nodes already have.
func TestFixedSettingsCannotChange(t *testing.T) {
	c := &config.Cluster{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	made := state.FixedOf(c)
	earlier := made
	earlier.Settings = nil // an earlier release did not record the setting and used the default
	c.Controllers.Choose("node_cidr_mask_size", 24)
	for _, before := range []state.Fixed{made, earlier, {}} {
		if err := plan.CheckUnchangeable(c, before); err != nil {
			t.Errorf("the default is said: %v", err)
		}
	}
	c.Controllers.Choose("node_cidr_mask_size", 25)
	for _, before := range []state.Fixed{made, earlier} {
		if err := plan.CheckUnchangeable(c, before); err == nil ||
			!strings.Contains(err.Error(),
				"controllers.node_cidr_mask_size was 24 when the cluster was made, and is 25 now") {
			t.Errorf("it changes: %v", err)
		}
	}
	if err := plan.CheckUnchangeable(c, state.Fixed{}); err != nil {
		t.Errorf("a cluster that is yet to be made: %v", err)
	}
}

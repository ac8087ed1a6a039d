package workload_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
	"clusterctl/provision/workload"
)

// The kinds of Gateway API are installed with a cluster that enables them, and stay. A program that lacks them reports
// this.
// Proves S32.
func TestGatewayAPIIsAppliedIfDeclared(t *testing.T) {
	names := func(in *config.Ingress) (list []string, err error) {
		all, err := workload.Objects(&config.Cluster{Name: "c", Ingress: in})
		for _, d := range all {
			if kind := d.Object.GetKind(); kind == "GatewayClass" || kind == "CustomResourceDefinition" ||
				kind == "ClusterRoleBinding" {
				list = append(list, kind+" "+d.Object.GetName())
				if kind == "CustomResourceDefinition" && !d.IsNeverPruned {
					t.Errorf("%s would be pruned with all its objects", d.Object.GetName())
				}
			}
		}
		slices.Sort(list)
		return list, err
	}
	if list, err := names(&config.Ingress{Class: "web"}); len(list) > 0 || err != nil {
		t.Errorf("undeclared objects %v, %v", list, err)
	}
	own := &config.Ingress{Class: "web"}
	own.Settings.Choose("gateway_addresses", daemons.OfLoadBalancer)
	if list, err := names(own); !slices.Equal(list, []string{"ClusterRoleBinding kube-ingress:gateway-addresses"}) ||
		err != nil {
		t.Errorf("%v, %v", list, err)
	}
	list, err := names(&config.Ingress{Class: "web", GatewayAPI: true})
	if _, statErr := os.Stat("definitions/gateway-api.yaml.gz"); statErr != nil {
		if err == nil || !strings.Contains(err.Error(), "make build") {
			t.Errorf("without definitions: %v, %v", list, err)
		}
		return
	}
	const d, of = "CustomResourceDefinition ", ".gateway.networking.k8s.io"
	want := []string{
		d + "gatewayclasses" + of,
		d + "gateways" + of,
		d + "httproutes" + of,
		d + "referencegrants" + of,
		"GatewayClass web",
	}
	if !slices.Equal(list, want) || err != nil {
		t.Errorf("%v, %v; want %v", list, err, want)
	}
}

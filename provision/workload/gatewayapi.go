package workload

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
)

// gatewayArchive contains gateway-api.yaml.gz, which the build creates.
//
//go:embed definitions
var gatewayArchive embed.FS

const gatewayController = "clusterctl.local/gateway"

// gatewayAddresses is the name of the ClusterRoleBinding that lets ingress proxies create Services for Gateways.
const gatewayAddresses = "kube-ingress:gateway-addresses"

// ingressUsers is the group of the ingress proxies' users, and the user that all of them shared in former releases.
const ingressUsers = "system:kube-ingress"

// gatewayAPI returns what Gateways need: their kinds, a class, and the right to create services if those provide their
// addresses. The definitions are all applied before objects of their kinds. The cluster's own objects have no blocks,
// so depends_on cannot order them.
func gatewayAPI(c *config.Cluster) (list []any, err error) {
	cfg := daemons.DefaultIngress()
	c.Ingress.Settings.Over(&cfg)
	if cfg.GatewayAddresses == daemons.OfLoadBalancer {
		subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: ingressUsers}}
		if c.HasFormerUsers { // until DropFormerRights deletes the bindings
			subjects = append(subjects,
				rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: ingressUsers})
		}
		list = append(list, &rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: gatewayAddresses},
			Subjects:   subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
				Name: "system:kube-ingress:gateway-addresses"},
		})
	}
	if !c.Ingress.GatewayAPI {
		return list, nil
	}
	all, err := gatewayDefinitions()
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		list = append(list, d)
	}
	return append(list, map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
		"metadata": map[string]any{"name": c.Ingress.Class},
		"spec":     map[string]any{"controllerName": gatewayController},
	}), nil
}

func gatewayDefinitions() (list []*apiextensionsv1.CustomResourceDefinition, err error) {
	packed, err := gatewayArchive.ReadFile("definitions/gateway-api.yaml.gz")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("gateway_api: this program was built without the definitions of Gateway API, which " +
			"`make build` puts into it")
	}
	if err != nil {
		return nil, err
	}
	text, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("read the definitions of Gateway API: %w", err)
	}
	for docs := yaml.NewYAMLOrJSONDecoder(text, 4096); ; {
		d := &apiextensionsv1.CustomResourceDefinition{}
		if err := docs.Decode(d); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the definitions of Gateway API: %w", err)
		}
		if d.Name != "" {
			list = append(list, d)
		}
	}
}

// Package admission holds the API server's plugins that change or refuse writes after authorization. Each file is one
// plugin, with upstream's name. The plugins read stored objects, and change nothing but the object of the write.
package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/authz"
	"clusterctl/daemons/config"
)

// All returns the plugins in order: the mutating ones, then the validating ones. The quota is not among them.
// authorizer authorizes the extra rights that some plugins require. Metrics are registered with counts.
func All(
	cfg config.APIServer,
	objects api.CurrentObjects,
	authorizer api.Authorizer,
	counts prometheus.Registerer,
) ([]api.Mutator, []api.Validator, error) {
	levels, err := podSecurityConfiguration(cfg.AdmissionControlConfigFile)
	if err != nil {
		return nil, nil, err
	}
	security, err := newPodSecurity(objects, levels, counts)
	if err != nil {
		return nil, nil, err
	}
	lifecycle, accounts, ranges := &namespaceLifecycle{
		objects: objects,
	}, &serviceAccount{
		objects,
	}, &limitRanger{
		objects,
	}
	nodes, priorities := &nodeRestriction{objects, authorizer}, &priorityPlugin{objects}
	validators := []api.Validator{ranges, accounts, nodes, &replicaRestriction{objects}, security, priorities,
		&certificateApproval{
			authorizer,
		}, &certificateSigning{authorizer}, certificateSubjectRestriction{}, authz.NewEscalation(objects, authorizer),
		&claimResize{objects}, &trustBundle{authorizer}, &deviceAdmin{objects}, &deviceStatus{authorizer}}
	external, err := newExternalIPs(cfg, objects)
	if err != nil {
		return nil, nil, err
	}
	validators = append(validators, external)
	for _, name := range cfg.EnableAdmissionPlugins {
		switch {
		case name == ownerReferencesName:
			validators = append(validators, newOwnerReferences(objects, authorizer))
		case name == denyExternalIPsName:
			validators = append(validators, denyExternalIPs{})
		case !slices.Contains(defaultPlugins, name):
			return nil, nil, fmt.Errorf("unknown admission plugin %q: %s can be enabled, and %s are always enabled",
				name,
				strings.Join(config.OptionalAdmissionPlugins, ", "), strings.Join(defaultPlugins, ", "))
		}
	}
	return []api.Mutator{
		lifecycle, ranges, accounts, taintNodes{}, priorities, tolerations{}, &defaultStorageClass{objects},
		&defaultIngressClass{
			objects,
		}, storageProtection{}, &runtimeClass{objects}, certificate{}, &topologyLabels{objects},
	}, validators, nil
}

// defaultPlugins are the plugins that are always enabled, by upstream's names.
var defaultPlugins = []string{
	"NamespaceLifecycle", "LimitRanger", "ServiceAccount", "TaintNodesByCondition", "Priority",
	"DefaultTolerationSeconds", "DefaultStorageClass",
	"PersistentVolumeClaimResize", "StorageObjectInUseProtection", "DefaultIngressClass", "RuntimeClass",
	"CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction",
	"ClusterTrustBundleAttest", "NodeRestriction", "PodTopologyLabels", "PodSecurity", "ResourceQuota",
	"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook",
}

// resourceName is the group and name of a resource, such as {"", "pods"}.
type resourceName = schema.GroupResource

var (
	podsGR            = resourceName{Resource: "pods"}
	nodesGR           = resourceName{Resource: "nodes"}
	namespacesGR      = resourceName{Resource: "namespaces"}
	serviceAccountsGR = resourceName{Resource: "serviceaccounts"}
	limitRangesGR     = resourceName{Resource: "limitranges"}
	resourceQuotasGR  = resourceName{Resource: "resourcequotas"}
	claimsGR          = resourceName{Resource: "persistentvolumeclaims"}
)

// forbidden returns the refusal of a write, with a reason.
func forbidden(a *api.Admission, err error) error {
	return apierrors.NewForbidden(a.Resource.GroupResource(), a.Name, err)
}

// isOperation reports whether the write is that operation on the resource itself, not on a subresource.
func isOperation(a *api.Admission, operation string, r resourceName) bool {
	return a.Operation == operation && a.Subresource == "" && a.Resource.GroupResource() == r
}

// currentObject returns an object, or nil if it does not exist. The object may have been created through another API
// server a moment ago, so it is only missing if the store has none either.
func currentObject(
	ctx context.Context,
	objects api.CurrentObjects,
	r resourceName,
	namespace, name string,
) (runtime.Object, error) {
	obj, ok, err := objects.GetCurrent(ctx, r, namespace, name)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("%s %q could not be read in time", r, name), 1)
	}
	if err != nil || !ok {
		return nil, err
	}
	return obj, nil
}

package authz

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/loadbalancer"
	"clusterctl/daemons/api/replica"
)

const gatewayGroup = "gateway.networking.k8s.io"

var (
	leasesGR = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}
	slicesGR = schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}
)

// Replicas allows the daemons of a machine to change the objects of that machine: the lease and the endpoint slices in
// which they publish themselves. It allows an ingress proxy to read the Secrets that Ingresses and Gateways refer to.
// Read access that all machines share is granted by RBAC roles. Admission checks the names of new objects, which the
// authorizer does not see.
type Replicas struct {
	objects api.Objects
	secrets *referencedSecrets
}

// NewReplicas returns the authorizer of the daemons that run on several machines.
func NewReplicas(objects api.Objects) *Replicas {
	return &Replicas{objects: objects, secrets: &referencedSecrets{objects: objects}}
}

// Authorize decides only for the users of replicas. It returns Allow or NoOpinion, never Deny.
func (p *Replicas) Authorize(_ context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	d, reason, _ := p.TryAuthorize(u, r)
	return d, reason, nil
}

// TryAuthorize is Authorize. It never waits, because it reads only from memory.
func (p *Replicas) TryAuthorize(u api.User, r api.Request) (api.Decision, string, bool) {
	if !r.Resource {
		return api.NoOpinion, "", false
	}
	daemon, machine, ok := replica.Parse(u)
	if !ok {
		return api.NoOpinion, "", false
	}
	switch reason := p.refusalReason(daemon, machine, &r); reason {
	case "":
		return api.Allow, "", false
	case noDecision:
		return api.NoOpinion, "", false
	default:
		return api.NoOpinion, reason, false
	}
}

// noDecision is the reason for requests that Replicas does not decide.
const noDecision = "-"

// refusalReason returns why a daemon of a machine may not do a request, or "" if it may.
func (p *Replicas) refusalReason(daemon, machine string, r *api.Request) string {
	publishes := replica.Manager(daemon) != ""
	switch gr := r.GroupResource(); {
	case gr == leasesGR && r.Namespace == metav1.NamespaceSystem && r.Subresource == "":
		return leaseRefusal(daemon, machine, r)
	case gr == slicesGR && r.Namespace == metav1.NamespaceSystem && publishes && r.Subresource == "" &&
		(!isRead(r.Verb) || r.Verb == "get" && slices.Contains(replica.Slices(daemon, machine), r.Name)):
		return ownObjectRefusal(r, replica.Slices(daemon, machine), machine, "endpoint slices")
	case daemon != replica.Ingress:
		return noDecision
	case gr == secretsGR:
		return p.secretRefusal(r)
	case gr.Resource == "events" && (gr.Group == "" || gr.Group == "events.k8s.io") && r.Subresource == "" &&
		slices.Contains([]string{"create", "patch", "update"}, r.Verb):
		return ""
	case r.Subresource == "status" && r.Verb == "update":
		return p.statusRefusal(r)
	}
	return noDecision
}

// ElectionLeases returns the leases in kube-system by which the replicas of a daemon elect a leader.
func ElectionLeases(daemon string) []string {
	switch daemon {
	case replica.Ingress:
		return []string{replica.Ingress}
	case replica.Network:
		return loadbalancer.Leases()
	}
	return nil
}

func leaseRefusal(daemon, machine string, r *api.Request) string {
	names := ElectionLeases(daemon)
	if replica.Manager(daemon) != "" {
		if r.Name != "" && r.Name == replica.Lease(daemon, machine) {
			return ownObjectRefusal(r, []string{r.Name}, machine, "leases")
		}
	} else if len(names) == 0 {
		return noDecision
	}
	switch {
	case r.Verb == "create":
		return "" // admission checks the name
	case !slices.Contains(names, r.Name):
		return fmt.Sprintf("machine %q can only access its own lease, and those by which %s elects a leader", machine,
			daemon)
	case !slices.Contains([]string{"get", "update", "delete"}, r.Verb):
		return fmt.Sprintf("can only get, create, update, or delete a lease of %s", daemon)
	}
	return ""
}

// ownObjectRefusal allows a daemon to get, create, update and delete the objects with the given names.
func ownObjectRefusal(r *api.Request, names []string, machine, what string) string {
	switch {
	case r.Verb == "create":
		return "" // admission checks the name
	case !slices.Contains(names, r.Name):
		return fmt.Sprintf("machine %q can only change %s of its own", machine, what)
	case !slices.Contains([]string{"get", "update", "delete"}, r.Verb):
		return fmt.Sprintf("can only get, create, update, or delete %s", what)
	}
	return ""
}

func isRead(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// secretRefusal allows an ingress proxy to read and watch single Secrets that an Ingress or a Gateway refers to.
func (p *Replicas) secretRefusal(r *api.Request) string {
	switch {
	case !isRead(r.Verb):
		return "can only read resources of this type"
	case r.Subresource != "":
		return "cannot read subresource"
	case r.Namespace == "" || r.Name == "":
		return "can only read individual resources of this type"
	case !p.secrets.has(r.Namespace, r.Name):
		return "no Ingress and no Gateway refers to this object"
	}
	if obj, ok := p.objects.Get(secretsGR, r.Namespace, r.Name); ok {
		if secret, isType := obj.(*corev1.Secret); isType && secret.Type != corev1.SecretTypeTLS {
			return fmt.Sprintf("can only read secrets of type %s", corev1.SecretTypeTLS)
		}
	}
	return ""
}

// statusRefusal allows an ingress proxy to update the status of objects that it implements.
func (p *Replicas) statusRefusal(r *api.Request) string {
	gr := r.GroupResource()
	switch {
	case gr == ingressesGR:
		obj, ok := p.objects.Get(gr, r.Namespace, r.Name)
		if in, isType := obj.(*networkingv1.Ingress); !ok || !isType || !p.secrets.isOurIngress(in) {
			return "this Ingress is for another controller"
		}
		return ""
	case gr.Group == gatewayGroup && slices.Contains([]string{"gatewayclasses", "gateways", "httproutes"}, gr.Resource):
		obj, ok := p.objects.Get(gr, r.Namespace, r.Name)
		if o, isType := obj.(*unstructured.Unstructured); !ok || !isType || !p.secrets.isImplementedByProxy(gr, o) {
			return "this object is for another controller"
		}
		return ""
	}
	return noDecision
}

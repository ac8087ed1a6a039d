package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kind is a kind of objects that can be explained.
type kind struct {
	group, resource, name string
	isNamespaced          bool
	aliases               []string
	explain               func(ctx context.Context, x explainer, ref Ref) (*finding, error)
}

// kinds returns all kinds that can be explained.
func kinds() []kind {
	return []kind{
		{"", "pods", "Pod", true, []string{"po"}, explainPod},
		{"apps", "deployments", "Deployment", true, []string{"deploy"}, explainDeployment},
		{"apps", "replicasets", "ReplicaSet", true, []string{"rs"}, explainReplicaSet},
		{"apps", "statefulsets", "StatefulSet", true, []string{"sts"}, explainStatefulSet},
		{"apps", "daemonsets", "DaemonSet", true, []string{"ds"}, explainDaemonSet},
		{"batch", "jobs", "Job", true, nil, explainJob},
		{"batch", "cronjobs", "CronJob", true, []string{"cj"}, explainCronJob},
		{"", "persistentvolumeclaims", "PersistentVolumeClaim", true, []string{"pvc"}, explainClaim},
		{"", "persistentvolumes", "PersistentVolume", false, []string{"pv"}, explainVolume},
		{"", "services", "Service", true, []string{"svc"}, explainService},
		{"networking.k8s.io", "ingresses", "Ingress", true, []string{"ing"}, explainIngress},
		{"", "nodes", "Node", false, []string{"no"}, explainNode},
		{"certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest", false, []string{"csr"},
			explainRequest},
		{"", "namespaces", "Namespace", false, []string{"ns"}, explainNamespace},
		{"autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true, []string{"hpa"},
			explainAutoscaler},
		{"policy", "poddisruptionbudgets", "PodDisruptionBudget", true, []string{"pdb"}, explainBudget},
	}
}

// Kinds returns the words that name kinds, for completion: the singular of each.
func Kinds() (list []string) {
	for _, k := range kinds() {
		list = append(list, strings.ToLower(k.name))
	}
	return list
}

func (k kind) ref(namespace, name string) Ref {
	if !k.isNamespaced {
		namespace = ""
	}
	return Ref{Group: k.group, Resource: k.resource, Kind: k.name, Namespace: namespace, Name: name}
}

// answersTo reports whether a word names the kind.
func (k kind) answersTo(word string) bool {
	word = strings.ToLower(word)
	plain, group, hasGroup := strings.Cut(word, ".")
	if hasGroup && group != k.group {
		return false
	}
	return plain == k.resource || plain == strings.ToLower(k.name) || slices.Contains(k.aliases, plain)
}

// Parse returns the object that a text such as deployment/web or pvc/data names. A namespace has no meaning for kinds
// without namespaces; it is default when empty.
func Parse(text, namespace string) (Ref, error) {
	word, name, ok := strings.Cut(text, "/")
	if !ok || word == "" || name == "" || strings.Contains(name, "/") {
		return Ref{}, fmt.Errorf("%q does not name an object: use KIND/NAME, such as pod/web-1", text)
	}
	for _, k := range kinds() {
		if k.answersTo(word) {
			if namespace == "" {
				namespace = metav1.NamespaceDefault
			}
			return k.ref(namespace, name), nil
		}
	}
	return Ref{}, fmt.Errorf("%s cannot be explained: the kinds are %s", word, strings.Join(Kinds(), ", "))
}

// findKind returns the kind of an object, which is named by its resource or its kind.
func findKind(object Ref) (kind, error) {
	for _, k := range kinds() {
		if object.Group == k.group &&
			(object.Resource == k.resource || object.Resource == "" && object.Kind == k.name) {
			if object.Name == "" || k.isNamespaced && object.Namespace == "" {
				return kind{}, fmt.Errorf("explain %s: the name or the namespace is missing", k.name)
			}
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("%s %s cannot be explained: the kinds are %s", object.Resource, object.Kind,
		strings.Join(Kinds(), ", "))
}

// refTo returns the reference to an object of an explained kind.
func refTo(name string, object metav1.Object) Ref {
	for _, k := range kinds() {
		if k.name == name {
			return k.ref(object.GetNamespace(), object.GetName())
		}
	}
	return Ref{Kind: name, Namespace: object.GetNamespace(), Name: object.GetName()}
}

// coreRef returns a reference to an object of the core group that is not explained by itself.
func coreRef(resource, name, namespace, object string) Ref {
	return Ref{Resource: resource, Kind: name, Namespace: namespace, Name: object}
}

// kubectlName returns the object as kubectl's arguments, with its namespace.
func kubectlName(ref Ref) string {
	word := arg(strings.ToLower(ref.Kind) + "/" + ref.Name)
	if ref.Namespace == "" {
		return word
	}
	return "-n " + arg(ref.Namespace) + " " + word
}

// isOwnedBy reports whether an object has a controller.
func isOwnedBy(object metav1.Object, owner metav1.Object) bool {
	of := metav1.GetControllerOf(object)
	return of != nil && of.UID == owner.GetUID() && of.Name == owner.GetName()
}

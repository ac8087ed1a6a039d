package why

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/config/gitsource"
)

func explainNamespace(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	n, err := read(ctx, ref, x.core().Namespaces())
	if err != nil {
		return nil, err
	}
	return x.namespace().namespaceFinding(ctx, n), nil
}

const stillTerminating = "is still terminating"

// namespaceFinding returns why a namespace that was deleted still exists.
func (x namespaceExplainer) namespaceFinding(ctx context.Context, n *corev1.Namespace) *finding {
	ref := refTo("Namespace", n)
	if n.DeletionTimestamp == nil {
		return healthy("is active")
	}
	conditions := map[corev1.NamespaceConditionType]corev1.NamespaceCondition{}
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			conditions[c.Type] = c
		}
	}
	if c, ok := conditions[corev1.NamespaceDeletionDiscoveryFailure]; ok {
		return x.unknownKinds(ctx, ref, c)
	}
	if c, ok := conditions[corev1.NamespaceFinalizersRemaining]; ok {
		return x.remainingFinalizers(ctx, ref, c, conditions[corev1.NamespaceContentRemaining])
	}
	if c, ok := conditions[corev1.NamespaceDeletionContentFailure]; ok {
		return broken(ref, stillTerminating, "some of its objects cannot be deleted: "+clause(c.Message),
			"status.conditions["+string(c.Type)+"]", Remedy{
				Text: "Delete them, and read the error.", Command: "kubectl get all -n " + n.Name})
	}
	if c, ok := conditions[corev1.NamespaceContentRemaining]; ok {
		return x.remainingObjects(ctx, ref, c)
	}
	if f := finalizerFinding(ref, stillTerminating, n); f != nil {
		return f
	}
	var others []string
	for _, f := range n.Spec.Finalizers {
		if f != corev1.FinalizerKubernetes {
			others = append(others, string(f))
		}
	}
	if len(others) > 0 {
		return broken(ref, stillTerminating, "its finalizers were not removed: "+joinNames(others), "spec.finalizers",
			Remedy{Text: "Check the controller that removes them.", Field: "spec.finalizers of " + ref.String()})
	}
	if f := x.schedule().stoppedDaemon(ctx, "kube-controller-manager"); f != nil {
		return f.below(ref, stillTerminating, "nothing deletes its objects", "status.conditions")
	}
	return healthy("is being deleted")
}

// unknownKinds explains a namespace whose kinds cannot all be listed, because an aggregated API is not available.
func (x namespaceExplainer) unknownKinds(ctx context.Context, ref Ref, c corev1.NamespaceCondition) *finding {
	evidence := "status.conditions[" + string(c.Type) + "]"
	all, _ := x.dynamicList(ctx, apiServices(), "")
	for _, a := range all {
		if message, ok := unavailable(a); ok {
			f := apiServiceFinding(a, message)
			return f.below(ref, stillTerminating, "its objects of some kinds cannot be listed: "+c.Message, evidence)
		}
	}
	return broken(ref, stillTerminating, "its objects of some kinds cannot be listed: "+clause(c.Message), evidence,
		Remedy{Text: "Find the API service that is not available.", Command: "kubectl get apiservices"})
}

func apiServices() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
}

// unavailable returns why an API service is not available, and whether that is so.
func unavailable(a *unstructured.Unstructured) (string, bool) {
	conditions, _, _ := unstructured.NestedSlice(a.Object, "status", "conditions")
	for _, one := range conditions {
		c, ok := one.(map[string]any)
		if !ok || c["type"] != "Available" || c["status"] == "True" {
			continue
		}
		message, _ := c["message"].(string)
		reason, _ := c["reason"].(string)
		return cmp.Or(message, reason, "no reason was reported"), true
	}
	return "", false
}

// apiServiceFinding returns the finding of an API service that is not available.
func apiServiceFinding(a *unstructured.Unstructured, message string) *finding {
	ref := Ref{Group: "apiregistration.k8s.io", Resource: "apiservices", Kind: "APIService", Name: a.GetName()}
	f := broken(ref, "is not available", fmt.Sprintf("the API service %s is not available: %s", a.GetName(),
		clause(message)), "status.conditions[Available]")
	namespace, _, _ := unstructured.NestedString(a.Object, "spec", "service", "namespace")
	service, _, _ := unstructured.NestedString(a.Object, "spec", "service", "name")
	if service != "" {
		f.remedy(Remedy{Text: "Repair the service that serves it.", Command: "clusterctl why -n " + arg(namespace) +
			" " + arg("service/"+service)})
	}
	f.remedy(Remedy{Text: "If its program is gone for good, delete the API service.", Command: "kubectl delete " +
		"apiservice " +
		a.GetName()})
	return f
}

var (
	remainingKind = regexp.MustCompile(`([a-z0-9.-]+) has (\d+) resource instances`)
	remainingWith = regexp.MustCompile(`(\S+) in (\d+) resource instances`)
)

// maxRemainingKinds is how many kinds of objects that remain are listed.
const maxRemainingKinds = 3

// remainingFinalizers explains a namespace with objects whose finalizers have not been removed.
func (x namespaceExplainer) remainingFinalizers(ctx context.Context, ref Ref,
	c, content corev1.NamespaceCondition) *finding {
	evidence := "status.conditions[" + string(c.Type) + "]"
	var names []string
	for _, m := range remainingWith.FindAllStringSubmatch(c.Message, maxNames+1) {
		names = append(names, m[1])
	}
	for _, object := range x.remaining(ctx, ref.Name, content.Message) {
		if len(object.GetFinalizers()) == 0 {
			continue
		}
		owner := objectRef(object)
		if f := finalizerFinding(owner, stillTerminating, object); f != nil {
			return f.below(ref, stillTerminating, c.Message, evidence)
		}
	}
	return broken(ref, stillTerminating, "objects in it keep the finalizers "+
		cmp.Or(joinNames(names), clause(c.Message)),
		evidence, Remedy{Text: "Check that the controllers that remove these finalizers run.",
			Command: "kubectl get pods -A"})
}

func (x namespaceExplainer) remainingObjects(ctx context.Context, ref Ref, c corev1.NamespaceCondition) *finding {
	evidence := "status.conditions[" + string(c.Type) + "]"
	if objects := x.remaining(ctx, ref.Name, c.Message); len(objects) > 0 {
		owner := objectRef(objects[0])
		f := broken(owner, stillTerminating, fmt.Sprintf("%s still exists", owner), evidence, Remedy{
			Text: "Find out why it still exists.", Command: "kubectl describe " + kubectlName(owner)})
		if slices.Contains(Kinds(), strings.ToLower(owner.Kind)) {
			f.remedies[0].Command = "clusterctl why -n " + owner.Namespace + " " + strings.ToLower(owner.Kind) + "/" +
				owner.Name
		}
		return f.below(ref, stillTerminating, c.Message, evidence)
	}
	return broken(ref, stillTerminating, clause(c.Message), evidence, Remedy{Text: "See what is left.",
		Command: "kubectl get all -n " + ref.Name})
}

// remaining lists objects of the kinds that a condition of a namespace names.
func (x namespaceExplainer) remaining(ctx context.Context, namespace,
	message string) (objects []*unstructured.Unstructured) {
	for _, m := range remainingKind.FindAllStringSubmatch(message, maxRemainingKinds) {
		gr := schema.ParseGroupResource(m[1])
		version := x.preferredVersion(gr)
		if version == "" {
			continue
		}
		all, _ := x.dynamicList(ctx, gr.WithVersion(version), namespace)
		objects = append(objects, all...)
	}
	return objects
}

// preferredVersion returns the version in which a resource is served, or "".
func (x namespaceExplainer) preferredVersion(gr schema.GroupResource) string {
	if gr.Group == "" {
		return "v1"
	}
	lists, err := x.clients.Kubernetes.Discovery().ServerPreferredResources()
	if err != nil && len(lists) == 0 {
		x.miss("served kinds", err)
		return ""
	}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err == nil && gv.Group == gr.Group && slices.ContainsFunc(l.APIResources, func(a metav1.APIResource) bool {
			return a.Name == gr.Resource
		}) {
			return gv.Version
		}
	}
	return ""
}

func objectRef(u *unstructured.Unstructured) Ref {
	gv, _ := schema.ParseGroupVersion(u.GetAPIVersion())
	return Ref{Group: gv.Group, Resource: strings.ToLower(u.GetKind()), Kind: u.GetKind(), Namespace: u.GetNamespace(),
		Name: u.GetName()}
}

// finalizerHolders returns who removes the finalizers that Kubernetes and clusterctl set.
func finalizerHolders() map[string]string {
	return map[string]string{
		"foregroundDeletion": "the garbage collector removes it once all dependents " +
			"are deleted",
		"orphan": "the garbage collector removes it once the dependents " +
			"have no owner",
		"kubernetes.io/pvc-protection":                "it is removed when no pod uses the claim",
		"kubernetes.io/pv-protection":                 "it is removed when no claim is bound to the volume",
		"service.kubernetes.io/load-balancer-cleanup": "the load balancer's controller removes it",
		"batch.kubernetes.io/job-tracking":            "the controller of Jobs removes it when the pod is counted",
		"external-attacher/":                          "the CSI attacher removes it when the volume is detached",
		"external-provisioner.volume.kubernetes.io/":  "the CSI provisioner removes it when the disk is deleted",
		"resource.kubernetes.io/delete-protection":    "it is removed when no pod uses the claim",
		"customresourcecleanup.apiextensions.k8s.io":  "the API server removes it when all custom objects are deleted",
		gitsource.Finalizer:                           "the GitOps controller removes it when its objects are deleted",
	}
}

// finalizerFinding returns the finding of an object that is being deleted and keeps a finalizer, or nil.
func finalizerFinding(ref Ref, state string, object metav1.Object) *finding {
	all := object.GetFinalizers()
	if object.GetDeletionTimestamp() == nil || len(all) == 0 {
		return nil
	}
	first := all[0]
	holder := "its controller has not removed it"
	for name, text := range finalizerHolders() {
		if first == name || strings.HasSuffix(name, "/") && strings.HasPrefix(first, name) {
			holder = text
		}
	}
	if manager := finalizerManager(object); manager != "" {
		holder += "; " + manager + " set it"
	}
	reason := fmt.Sprintf("the finalizer %s of %s was not removed: %s", first, ref, holder)
	if len(all) > 1 {
		reason = fmt.Sprintf("the finalizers %s of %s were not removed: of %s, %s", joinNames(all), ref, first, holder)
	}
	check := Remedy{Text: "Check the controller that removes it.",
		Command: "kubectl get -o yaml --show-managed-fields " + kubectlName(ref)}
	if ref.Resource == "secrets" || ref.Kind == "Secret" {
		check.Command = "kubectl describe " + kubectlName(ref) // shows no values
	}
	if slices.ContainsFunc(all, isBuiltIn) {
		return broken(ref, state, reason, "metadata.finalizers", check)
	}
	remove := Remedy{Field: "metadata.finalizers of " + ref.String(),
		Text: "If that controller is gone for good, remove the finalizer. What it would clean up stays behind."}
	if len(all) == 1 {
		remove.Command = "kubectl patch " + kubectlName(ref) + ` --type=merge -p '{"metadata":{"finalizers":null}}'`
	}
	return broken(ref, state, reason, "metadata.finalizers", check, remove)
}

// isBuiltIn reports whether a finalizer belongs to a part of the cluster, which removes it when that is safe. Removing
// it by hand loses data, or leaves volumes and machines in use.
func isBuiltIn(finalizer string) bool {
	for name := range finalizerHolders() {
		if finalizer == name || strings.HasSuffix(name, "/") && strings.HasPrefix(finalizer, name) {
			return true
		}
	}
	return false
}

// finalizerManager returns the program that set an object's finalizers, or "".
func finalizerManager(object metav1.Object) string {
	for _, m := range object.GetManagedFields() {
		if m.FieldsV1 != nil && strings.Contains(m.FieldsV1.GetRawString(), `"f:finalizers"`) {
			return m.Manager
		}
	}
	return ""
}

package why

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// objectName matches names of objects. Others in a message are not used, because they become part of commands.
const objectName = `([a-z0-9][a-z0-9.-]*)`

var (
	exceededQuota = regexp.MustCompile(`exceeded quota: ` + objectName +
		`, requested: (.+), used: (.+), limited: (\S+)`)
	failedQuota     = regexp.MustCompile(`failed quota: ` + objectName + `: must specify (.+)`)
	podSecurity     = regexp.MustCompile(`violates PodSecurity "([^"]+)": (.+)`)
	deniedByHook    = regexp.MustCompile(`admission webhook "` + objectName + `" denied the request:? ?(.*)`)
	failedHook      = regexp.MustCompile(`failed calling webhook "` + objectName + `": (.+)`)
	deniedByPolicy  = regexp.MustCompile(`(\w*AdmissionPolicy) '` + objectName + `' with binding '` + objectName + `' denied request: (.+)`)
	limitRange      = regexp.MustCompile(`(minimum|maximum|ratio|must be specified)[^.]* per (Container|Pod)`)
	missingAccount  = regexp.MustCompile(`serviceaccount "` + objectName + `" not found`)
	missingPriority = regexp.MustCompile(`no PriorityClass with name "?` + objectName + `"? was found`)
	missingRuntime  = regexp.MustCompile(`RuntimeClass(?:\.node\.k8s\.io)? "` + objectName + `" not found`)
	namespaceEnding = regexp.MustCompile(`because it is being terminated`)
)

// refusedCreation returns why the API server refuses the objects that a controller creates, or nil if no event of the
// owner reports it. template is the object with the fields to change.
func (x admissionExplainer) refusedCreation(ctx context.Context, owner Ref, object metav1.Object,
	template Ref) *finding {
	events := x.eventsOf(ctx, owner, object)
	e := findEvent(events, "FailedCreate", "ReplicaSetCreateError")
	if e == nil {
		return nil
	}
	// A later success means that the refusal is over.
	if ok := findEvent(events, "SuccessfulCreate"); ok != nil && EventTime(ok).After(EventTime(e)) {
		return nil
	}
	return x.admissionFinding(ctx, owner, template, e.Message, eventEvidence(e))
}

// admissionFinding explains the API server's refusal of an object that a controller creates.
func (x admissionExplainer) admissionFinding(ctx context.Context, owner, template Ref, message,
	evidence string) *finding {
	const state = "cannot create its pods"
	edit := "kubectl edit " + kubectlName(template)
	f := &finding{state: state, about: owner}
	message = strings.TrimPrefix(strings.TrimPrefix(message, "(combined from similar events): "), "Error creating: ")
	f.add(owner, "the API server refuses its pods: "+message, evidence)
	switch {
	case exceededQuota.MatchString(message), failedQuota.MatchString(message):
		x.addQuota(ctx, f, owner.Namespace, template, message)
	case podSecurity.MatchString(message):
		m := podSecurity.FindStringSubmatch(message)
		f.reason = fmt.Sprintf("the pod security level %q of namespace %s forbids its pods: %s", m[1], owner.Namespace,
			clause(m[2]))
		f.remedy(Remedy{Text: "Set the fields that the level demands.", Command: edit, Field: fmt.Sprintf(
			"spec.template.spec (securityContext) of %s", template)},
			Remedy{Text: "Or allow more in the namespace.",
				Command: "kubectl label namespace " + owner.Namespace +
					" pod-security.kubernetes.io/enforce=LEVEL --overwrite"})
	case deniedByHook.MatchString(message):
		m := deniedByHook.FindStringSubmatch(message)
		f.reason = fmt.Sprintf("the admission webhook %s denies its pods: %s", m[1], clause(m[2]))
		f.remedy(Remedy{Text: "Change what the webhook objects to.", Command: edit})
		x.addWebhook(ctx, f, m[1])
	case failedHook.MatchString(message):
		m := failedHook.FindStringSubmatch(message)
		f.reason = fmt.Sprintf("the admission webhook %s does not answer: %s", m[1], clause(m[2]))
		x.addWebhook(ctx, f, m[1])
	case deniedByPolicy.MatchString(message):
		m := deniedByPolicy.FindStringSubmatch(message)
		f.reason = fmt.Sprintf("the %s %s denies its pods: %s", m[1], m[2], clause(m[4]))
		f.remedy(Remedy{Text: "Change what the policy objects to.", Command: edit},
			Remedy{Text: "Or change the policy or its binding " + m[3] + ".", Command: "kubectl describe " +
				strings.ToLower(m[1]) + " " + m[2]})
	case missingAccount.MatchString(message):
		m := missingAccount.FindStringSubmatch(message)
		f.reason = fmt.Sprintf("ServiceAccount %s/%s does not exist", owner.Namespace, m[1])
		f.remedy(Remedy{Text: "Create the service account.", Command: "kubectl create serviceaccount -n " +
			owner.Namespace + " " + m[1]}, Remedy{Text: "Or name another one.", Command: edit,
			Field: "spec.template.spec.serviceAccountName of " + template.String()})
	case missingPriority.MatchString(message):
		m := missingPriority.FindStringSubmatch(message)
		f.reason = fmt.Sprintf("PriorityClass %s does not exist", m[1])
		f.remedy(Remedy{Text: "Create the class, or name another one.", Command: edit,
			Field: "spec.template.spec.priorityClassName of " + template.String()})
	case missingRuntime.MatchString(message):
		m := missingRuntime.FindStringSubmatch(message)
		f.reason = fmt.Sprintf("RuntimeClass %s does not exist", m[1])
		f.remedy(Remedy{Text: "Create the class, or name another one.", Command: edit,
			Field: "spec.template.spec.runtimeClassName of " + template.String()})
	case namespaceEnding.MatchString(message):
		f.reason = fmt.Sprintf("namespace %s is being deleted", owner.Namespace)
		f.remedy(Remedy{Text: "Use another namespace.", Command: "clusterctl why namespace/" + owner.Namespace})
	case limitRange.MatchString(message):
		x.addLimitRange(ctx, f, owner.Namespace, template, message)
	default:
		f.reason = "the API server refuses its pods: " + clause(message)
		f.remedy(Remedy{Text: "Change what the message names.", Command: edit})
	}
	return f
}

// addQuota completes the finding for a quota that has no room, or that demands requests or limits.
func (x admissionExplainer) addQuota(ctx context.Context, f *finding, namespace string, template Ref, message string) {
	field := "spec.template.spec.containers[*].resources of " + template.String()
	if m := failedQuota.FindStringSubmatch(message); m != nil {
		f.reason = fmt.Sprintf("ResourceQuota %s/%s demands that every container sets %s", namespace, m[1],
			clause(m[2]))
		f.add(coreRef("resourcequotas", "ResourceQuota", namespace, m[1]), "it demands "+m[2], "spec.hard")
		f.remedy(Remedy{Text: "Set these requests or limits, or add a LimitRange with defaults.", Field: field,
			Command: "kubectl set resources " + kubectlName(template) +
				" --requests=cpu=AMOUNT,memory=AMOUNT --limits=cpu=AMOUNT,memory=AMOUNT"})
		return
	}
	m := exceededQuota.FindStringSubmatch(message)
	f.reason = fmt.Sprintf("ResourceQuota %s/%s has no room: requested %s, used %s of %s", namespace, m[1], m[2], m[3],
		m[4])
	ref := coreRef("resourcequotas", "ResourceQuota", namespace, m[1])
	text := fmt.Sprintf("it is used up: %s of %s", m[3], m[4])
	if q, existence := find[*corev1.ResourceQuota](ctx, x.reader, ref,
		x.core().ResourceQuotas(namespace)); existence == present {
		var used []string
		for _, name := range sortedNames(q.Status.Hard) {
			if strings.Contains(m[2], string(name)+"=") {
				used = append(used, fmt.Sprintf("%s: %s of %s", name, quantity(q.Status.Used[name]),
					quantity(q.Status.Hard[name])))
			}
		}
		if len(used) > 0 {
			text = "it is used up: " + strings.Join(used, ", ")
		}
	}
	f.add(ref, text, "status.used")
	f.remedy(Remedy{Text: "Raise the quota.", Field: "spec.hard of " + ref.String(), Command: "kubectl edit -n " +
		namespace + " resourcequota/" + m[1]},
		Remedy{Text: "Or request less, or delete what uses the quota.", Field: field, Command: "kubectl edit " +
			kubectlName(template)})
}

// addLimitRange completes the finding for amounts that a LimitRange forbids. The message does not name it.
func (x admissionExplainer) addLimitRange(ctx context.Context, f *finding, namespace string, template Ref,
	message string) {
	_, detail, ok := strings.Cut(message, "is forbidden: ")
	if !ok {
		detail = message
	}
	f.reason = fmt.Sprintf("a LimitRange of namespace %s forbids its resources: %s", namespace, clause(detail))
	all, _ := x.dynamicList(ctx, schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}, namespace)
	edit := Remedy{Text: "Or change the LimitRange.", Command: "kubectl describe limitranges -n " + namespace}
	if len(all) == 1 {
		ref := coreRef("limitranges", "LimitRange", namespace, all[0].GetName())
		f.add(ref, "it forbids this: "+detail, "spec.limits")
		edit = Remedy{Text: "Or change the LimitRange.", Field: "spec.limits of " + ref.String(),
			Command: "kubectl edit -n " + namespace + " limitrange/" + all[0].GetName()}
	}
	f.remedy(Remedy{Text: "Set requests and limits within these bounds.",
		Field:   "spec.template.spec.containers[*].resources of " + template.String(),
		Command: "kubectl edit " + kubectlName(template)}, edit)
}

// addWebhook adds the configuration that has a webhook.
func (x admissionExplainer) addWebhook(ctx context.Context, f *finding, name string) {
	for _, one := range []struct{ resource, kind string }{
		{"validatingwebhookconfigurations", "ValidatingWebhookConfiguration"},
		{"mutatingwebhookconfigurations", "MutatingWebhookConfiguration"},
	} {
		all, _ := x.dynamicList(ctx, schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
			Resource: one.resource}, "")
		i := slices.IndexFunc(all, func(u *unstructured.Unstructured) bool { return hasWebhook(u, name) })
		if i < 0 {
			continue
		}
		ref := Ref{Group: "admissionregistration.k8s.io", Resource: one.resource, Kind: one.kind,
			Name: all[i].GetName()}
		text := "it configures the webhook " + name
		if service := webhookService(all[i], name); service != "" {
			text += ", which service " + service + " serves"
			namespace, service, _ := strings.Cut(service, "/")
			f.remedy(Remedy{Text: "Check the service of the webhook.", Command: "clusterctl why -n " + arg(namespace) +
				" " + arg("service/"+service)})
		}
		f.add(ref, text, "webhooks["+name+"]")
		f.remedy(Remedy{Text: "Or change or delete the configuration, if its program is gone.",
			Field: "webhooks[" + name + "].failurePolicy of " + ref.String(), Command: "kubectl edit " +
				strings.ToLower(one.kind) + " " + ref.Name})
		return
	}
	f.remedy(Remedy{Text: "Find the configuration of the webhook.", Command: "kubectl get " +
		"validatingwebhookconfigurations,mutatingwebhookconfigurations"})
}

func findWebhook(u *unstructured.Unstructured, name string) map[string]any {
	hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
	for _, h := range hooks {
		if hook, ok := h.(map[string]any); ok && hook["name"] == name {
			return hook
		}
	}
	return nil
}

func hasWebhook(u *unstructured.Unstructured, name string) bool { return findWebhook(u, name) != nil }

// webhookService returns the service of a webhook as NAMESPACE/NAME, or "" if it is reached by a URL.
func webhookService(u *unstructured.Unstructured, name string) string {
	hook := findWebhook(u, name)
	namespace, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "namespace")
	service, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "name")
	if service == "" {
		return ""
	}
	return namespace + "/" + service
}

package why

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

var (
	missingObject = regexp.MustCompile(`(?i)(configmap|secret|serviceaccount|persistentvolumeclaim)s? "` + objectName +
		`" not found`)
	missingKey = regexp.MustCompile(`couldn't find key ([\w.-]+) in (ConfigMap|Secret) ([^/\s]+)/` + objectName)
	absentKey  = regexp.MustCompile(`references non-existent (config|secret) key: ([\w.-]+)`)
)

// objectKinds are the kinds that messages name in lower case.
func objectKinds() map[string]string {
	return map[string]string{"configmap": "ConfigMap", "secret": "Secret", "serviceaccount": "ServiceAccount",
		"persistentvolumeclaim": "PersistentVolumeClaim"}
}

// missingByMessage returns the finding of a pod for which a message reports a missing object or key, or nil.
func (x referenceExplainer) missingByMessage(ctx context.Context, p *corev1.Pod, message, evidence string) *finding {
	if m := missingObject.FindStringSubmatch(message); m != nil {
		return x.missingFinding(ctx, p, objectKinds()[strings.ToLower(m[1])], m[2], evidence)
	}
	kind, key, name := "", "", ""
	if m := missingKey.FindStringSubmatch(message); m != nil {
		key, kind, name = m[1], m[2], m[4]
	} else if m := absentKey.FindStringSubmatch(message); m != nil {
		key, kind = m[2], map[string]string{"config": "ConfigMap", "secret": "Secret"}[m[1]]
	} else {
		return nil
	}
	object := strings.TrimSpace(kind + " " + name)
	remedy := Remedy{Text: fmt.Sprintf("Add the key %s to the %s, or correct the reference.", key, kind),
		Command: "kubectl edit -n " + p.Namespace + " " + strings.TrimSpace(strings.ToLower(kind)+" "+name),
		Field:   "data." + key + " of " + object}
	return broken(refTo("Pod", p), "does not run", fmt.Sprintf("%s has no key %s", object, key), evidence, remedy)
}

// missingFinding returns the finding of a pod that needs an object that does not exist.
func (x referenceExplainer) missingFinding(ctx context.Context, p *corev1.Pod, kind, name, evidence string) *finding {
	owner, _ := x.template().owner(ctx, p)
	command := fmt.Sprintf("kubectl create %s -n %s %s", strings.ToLower(kind), p.Namespace, name)
	switch kind {
	case "ConfigMap":
		command += " --from-file=FILE"
	case "Secret":
		command = fmt.Sprintf("kubectl create secret generic -n %s %s --from-file=FILE", p.Namespace, name)
	case "PersistentVolumeClaim":
		command = "kubectl apply -f FILE"
	}
	f := broken(refTo("Pod", p), "does not run", fmt.Sprintf("%s %s/%s does not exist", kind, p.Namespace, name),
		evidence, Remedy{Text: fmt.Sprintf("Create the %s.", kind), Command: command},
		Remedy{Text: "Or correct its name in " + owner.String() + ".", Command: x.template().editCommand(ctx, p)})
	f.steps[0].Text = sentence(fmt.Sprintf("it needs %s %s, which does not exist", kind, name))
	return f
}

// maxReferences is how many objects of a pod are looked up.
const maxReferences = 10

// missingReference returns the finding of a pod that needs a ConfigMap or Secret that does not exist, or nil.
func (x referenceExplainer) missingReference(ctx context.Context, p *corev1.Pod) *finding {
	for i, ref := range requiredObjects(p) {
		if i == maxReferences {
			break
		}
		var current existence
		if ref.Kind == "ConfigMap" {
			_, current = find(ctx, x.reader, ref, x.core().ConfigMaps(p.Namespace))
		} else {
			_, current = find(ctx, x.reader, ref, x.core().Secrets(p.Namespace))
		}
		if current == absent {
			return x.missingFinding(ctx, p, ref.Kind, ref.Name, "spec")
		}
	}
	return nil
}

// requiredObjects returns the ConfigMaps and Secrets that a pod cannot start without.
func requiredObjects(p *corev1.Pod) (refs []Ref) {
	seen := map[Ref]bool{}
	add := func(resource, kind, name string, optional *bool) {
		ref := coreRef(resource, kind, p.Namespace, name)
		if name != "" && (optional == nil || !*optional) && !seen[ref] {
			seen[ref] = true
			refs = append(refs, ref)
		}
	}
	configMap := func(name string, optional *bool) { add("configmaps", "ConfigMap", name, optional) }
	secret := func(name string, optional *bool) { add("secrets", "Secret", name, optional) }
	for _, v := range p.Spec.Volumes {
		switch {
		case v.ConfigMap != nil:
			configMap(v.ConfigMap.Name, v.ConfigMap.Optional)
		case v.Secret != nil:
			secret(v.Secret.SecretName, v.Secret.Optional)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					configMap(s.ConfigMap.Name, s.ConfigMap.Optional)
				}
				if s.Secret != nil {
					secret(s.Secret.Name, s.Secret.Optional)
				}
			}
		}
	}
	for _, c := range append(append([]corev1.Container{}, p.Spec.InitContainers...), p.Spec.Containers...) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				configMap(from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
			}
			if from.SecretRef != nil {
				secret(from.SecretRef.Name, from.SecretRef.Optional)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if k := e.ValueFrom.ConfigMapKeyRef; k != nil {
				configMap(k.Name, k.Optional)
			}
			if k := e.ValueFrom.SecretKeyRef; k != nil {
				secret(k.Name, k.Optional)
			}
		}
	}
	return refs
}

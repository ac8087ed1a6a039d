package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// unboundClaim returns the finding of the first claim of a pod that is not bound, or nil.
func (x storageExplainer) unboundClaim(ctx context.Context, p *corev1.Pod) *finding {
	for _, v := range p.Spec.Volumes {
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = p.Name + "-" + v.Name
		default:
			continue
		}
		claims, isComplete := x.claims(ctx, p.Namespace)
		i := slices.IndexFunc(claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == name })
		switch {
		case i >= 0 && claims[i].Status.Phase != corev1.ClaimBound:
			if f := x.claimFinding(ctx, claims[i]); !f.isHealthy() {
				return f
			}
		case i < 0 && isComplete:
			ref := refTo("PersistentVolumeClaim", &metav1.ObjectMeta{Namespace: p.Namespace, Name: name})
			return broken(ref, "is missing", ref.String()+" does not exist", "spec.volumes["+v.Name+"] of the pod",
				Remedy{Text: "Create the claim, or correct its name.", Command: "kubectl apply -f FILE"})
		}
	}
	return nil
}

func explainClaim(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	c, err := read(ctx, ref, x.core().PersistentVolumeClaims(ref.Namespace))
	if err != nil {
		return nil, err
	}
	return x.storage().claimFinding(ctx, c), nil
}

// claimFinding returns why a claim is in its state.
func (x storageExplainer) claimFinding(ctx context.Context, c *corev1.PersistentVolumeClaim) *finding {
	ref := refTo("PersistentVolumeClaim", c)
	switch {
	case c.DeletionTimestamp != nil:
		return x.terminatingClaim(ctx, c)
	case c.Status.Phase == corev1.ClaimLost:
		return broken(ref, "is lost", fmt.Sprintf("its volume %s no longer exists", c.Spec.VolumeName), "status.phase",
			Remedy{Text: "Restore the data into a new claim. The old volume cannot be bound again.",
				Command: "kubectl delete " + kubectlName(ref)})
	case c.Status.Phase == corev1.ClaimBound:
		return x.boundClaim(ctx, c)
	}
	return x.pendingClaim(ctx, c)
}

func (x storageExplainer) boundClaim(ctx context.Context, c *corev1.PersistentVolumeClaim) *finding {
	ref := refTo("PersistentVolumeClaim", c)
	events := x.eventsOf(ctx, ref, c)
	want, current := c.Spec.Resources.Requests[corev1.ResourceStorage], c.Status.Capacity[corev1.ResourceStorage]
	if want.Cmp(current) > 0 && !current.IsZero() {
		state := fmt.Sprintf("has %s instead of %s", current.String(), want.String())
		if e := findEvent(events, "VolumeResizeFailed", "FileSystemResizeFailed"); e != nil {
			return broken(ref, state, "its volume cannot grow: "+clause(e.Message), eventEvidence(e), Remedy{
				Text:  "Use a storage class that allows expansion, or ask for a size that it can give.",
				Field: "spec.resources.requests.storage of " + ref.String()})
		}
		return broken(ref, state, "its file system grows when a pod uses it on a node", "status.capacity", Remedy{
			Text: "Start or restart a pod that uses the claim."})
	}
	return healthy("is bound to volume %s", c.Spec.VolumeName)
}

func (x storageExplainer) terminatingClaim(ctx context.Context, c *corev1.PersistentVolumeClaim) *finding {
	const state = "is still terminating"
	ref := refTo("PersistentVolumeClaim", c)
	if slices.Contains(c.Finalizers, "kubernetes.io/pvc-protection") {
		const evidence = "metadata.finalizers (kubernetes.io/pvc-protection)"
		names := x.podsUsing(ctx, c.Namespace, c.Name)
		switch {
		case len(names) == 0 && x.missesPods(c.Namespace):
			return broken(ref, state, "a pod may still use it, and the pods could not all be read", evidence,
				mayListPods(c.Namespace))
		case len(names) > 0:
			return broken(ref, state, fmt.Sprintf("%s %s it", joinNames(names), uses(len(names))),
				evidence, Remedy{
					Text: "If the data is no longer needed, delete the pods, or scale their controller to zero. The " +
						"claim then ends, and with it the data, unless its volume has the policy Retain.",
					Command: "kubectl delete pod -n " + c.Namespace + " " +
						strings.Join(names[:min(len(names), maxNames)], " ")})
		}
	}
	if f := finalizerFinding(ref, state, c); f != nil {
		return f
	}
	return healthy("is being deleted")
}

func uses(n int) string {
	if n == 1 {
		return "uses"
	}
	return "use"
}

// podsUsing returns the names of the pods that use a claim.
func (x storageExplainer) podsUsing(ctx context.Context, namespace, claim string) (names []string) {
	pods, _ := x.pods(ctx, namespace)
	for _, p := range pods {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed &&
			slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
				return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim ||
					v.Ephemeral != nil && p.Name+"-"+v.Name == claim
			}) {
			names = append(names, p.Name)
		}
	}
	return names
}

const claimPending = "is not bound"

// pendingClaim returns why a claim has no volume.
func (x storageExplainer) pendingClaim(ctx context.Context, c *corev1.PersistentVolumeClaim) *finding {
	ref := refTo("PersistentVolumeClaim", c)
	if c.Spec.VolumeName != "" {
		return x.namedVolume(ctx, c)
	}
	classes, isComplete := list[*storagev1.StorageClass](ctx, x.reader, "storageclasses", "",
		x.clients.Kubernetes.StorageV1().StorageClasses())
	if c.Spec.StorageClassName == nil {
		if i := slices.IndexFunc(classes, isDefaultClass); i < 0 && isComplete {
			return broken(ref, claimPending, "it names no storage class and the cluster has no default one",
				"spec.storageClassName", Remedy{Text: "Create the claim again with the name of a class" +
					classNames(classes) + ".", Field: "spec.storageClassName of " + ref.String(),
					Command: "kubectl get storageclasses"})
		}
	}
	name := ""
	if c.Spec.StorageClassName != nil {
		name = *c.Spec.StorageClassName
	}
	i := slices.IndexFunc(classes, func(s *storagev1.StorageClass) bool { return s.Name == name })
	if name == "" || i < 0 && x.hasVolumeOfClass(ctx, name) {
		return x.noVolume(ctx, c, name)
	}
	if i < 0 {
		if !isComplete {
			return x.claimEvents(ctx, c, name, "")
		}
		return broken(ref, claimPending, fmt.Sprintf("its storage class %s does not exist", name),
			"spec.storageClassName", Remedy{Text: "Create the class, or create the claim again with another one" +
				classNames(classes) + ".", Field: "spec.storageClassName of " + ref.String(),
				Command: "kubectl get storageclasses"})
	}
	class := classes[i]
	waits := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	if waits && c.Annotations["volume.kubernetes.io/selected-node"] == "" {
		if pods := x.podsUsing(ctx, c.Namespace, c.Name); len(pods) == 0 {
			return broken(ref, claimPending, fmt.Sprintf(
				"its storage class %s waits for a pod that uses the claim, and no pod does", name),
				"volumeBindingMode of StorageClass "+name, Remedy{
					Text: "Create a pod that uses the claim."})
		}
		// The pod's own finding says why it was not scheduled.
		if e := findEvent(x.eventsOf(ctx, ref, c), "ProvisioningFailed"); e == nil {
			return healthy("waits until a pod that uses it is scheduled")
		}
	}
	if class.Provisioner == "kubernetes.io/no-provisioner" {
		return x.noVolume(ctx, c, name)
	}
	return x.claimEvents(ctx, c, name, class.Provisioner)
}

func isDefaultClass(s *storagev1.StorageClass) bool {
	return s.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"
}

func classNames(classes []*storagev1.StorageClass) string {
	var names []string
	for _, c := range classes {
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return ": " + joinNames(names)
}

// claimEvents explains a pending claim by its events. provisioner is empty if the class could not be read.
func (x storageExplainer) claimEvents(ctx context.Context, c *corev1.PersistentVolumeClaim, class,
	provisioner string) *finding {
	ref := refTo("PersistentVolumeClaim", c)
	events := x.eventsOf(ctx, ref, c)
	if e := findEvent(events, "ProvisioningFailed"); e != nil {
		return broken(ref, claimPending, "no volume could be created: "+clause(e.Message), eventEvidence(e), Remedy{
			Text: fmt.Sprintf("Correct the storage class %s or the claim.", class), Command: "kubectl describe " +
				"storageclass " + arg(class)})
	}
	if provisioner == "" {
		return broken(ref, claimPending, "no volume was created for it", "status.phase", describeRemedy(ref))
	}
	return broken(ref, claimPending, fmt.Sprintf("the provisioner %s of its storage class %s has not created a volume",
		provisioner, class), "status.phase", Remedy{
		Text: "Check that the program of the provisioner runs.", Command: "kubectl get pods -A"}, describeRemedy(ref))
}

// namedVolume explains a claim that names a volume it is not bound to.
func (x storageExplainer) namedVolume(ctx context.Context, c *corev1.PersistentVolumeClaim) *finding {
	ref, volume := refTo("PersistentVolumeClaim", c), kindRef("PersistentVolume", "", c.Spec.VolumeName)
	v, existence := find(ctx, x.reader, volume, x.core().PersistentVolumes())
	reason := fmt.Sprintf("volume %s is not bound to it yet", c.Spec.VolumeName)
	switch {
	case existence == absent:
		reason = fmt.Sprintf("volume %s, which it names, does not exist", c.Spec.VolumeName)
	case existence == present && v.Spec.ClaimRef != nil && (v.Spec.ClaimRef.Name != c.Name ||
		v.Spec.ClaimRef.Namespace != c.Namespace):
		reason = fmt.Sprintf("volume %s belongs to claim %s/%s", v.Name, v.Spec.ClaimRef.Namespace,
			v.Spec.ClaimRef.Name)
	case existence == present:
		if text := mismatch(v, c, ptrText(c.Spec.StorageClassName)); text != "" {
			reason = fmt.Sprintf("volume %s does not fit: %s", v.Name, text)
		}
	}
	return broken(ref, claimPending, reason, "spec.volumeName", Remedy{
		Text: "Create the claim again with another volume.", Field: "spec.volumeName of " + ref.String(),
		Command: "kubectl get persistentvolumes"})
}

func ptrText(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (x storageExplainer) hasVolumeOfClass(ctx context.Context, class string) bool {
	all, _ := x.volumes(ctx)
	return slices.ContainsFunc(all, func(v *corev1.PersistentVolume) bool { return v.Spec.StorageClassName == class })
}

// noVolume explains a claim of a class without a provisioner: why no existing volume fits.
func (x storageExplainer) noVolume(ctx context.Context, c *corev1.PersistentVolumeClaim, class string) *finding {
	ref := refTo("PersistentVolumeClaim", c)
	remedy := Remedy{Text: "Create a PersistentVolume that fits, or create the claim again with a storage class " +
		"that has a provisioner.", Field: "spec of " + ref.String(), Command: "kubectl get persistentvolumes"}
	all, isComplete := x.volumes(ctx)
	var reasons []string
	for _, v := range all {
		if v.Spec.StorageClassName == class {
			if text := mismatch(v, c, class); text != "" {
				reasons = append(reasons, v.Name+" "+text)
			}
		}
	}
	reason := "no volume exists that fits, and its class has no provisioner"
	if len(reasons) > 0 {
		reason = "no volume fits: " + joinNames(reasons)
	}
	if !isComplete {
		reason = "it waits for a volume, because its class has no provisioner"
	}
	return broken(ref, claimPending, reason, "persistentvolumes of the class", remedy)
}

// mismatch returns why a volume cannot be bound to a claim, or "".
func mismatch(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim, class string) string {
	want, current := c.Spec.Resources.Requests[corev1.ResourceStorage], v.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case v.Spec.StorageClassName != class:
		return fmt.Sprintf("has the class %q instead of %q", v.Spec.StorageClassName, class)
	case v.Spec.ClaimRef != nil && (v.Spec.ClaimRef.Name != c.Name || v.Spec.ClaimRef.Namespace != c.Namespace):
		return fmt.Sprintf("belongs to claim %s/%s", v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name)
	case current.Cmp(want) < 0:
		return fmt.Sprintf("has %s of %s", current.String(), want.String())
	case v.Spec.VolumeMode != nil && c.Spec.VolumeMode != nil && *v.Spec.VolumeMode != *c.Spec.VolumeMode:
		return fmt.Sprintf("has the mode %s instead of %s", *v.Spec.VolumeMode, *c.Spec.VolumeMode)
	}
	for _, mode := range c.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, mode) {
			return fmt.Sprintf("does not allow %s", mode)
		}
	}
	if c.Spec.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(c.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(v.Labels)) {
			return "does not have the labels of the claim's selector"
		}
	}
	return ""
}

func explainVolume(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	v, err := read(ctx, ref, x.core().PersistentVolumes())
	if err != nil {
		return nil, err
	}
	claim := ""
	if v.Spec.ClaimRef != nil {
		claim = v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
	}
	switch {
	case v.DeletionTimestamp != nil && v.Status.Phase == corev1.VolumeBound:
		return broken(ref, "is still terminating", fmt.Sprintf("claim %s is bound to it", claim), "spec.claimRef",
			Remedy{Text: "If the data is no longer needed, delete the claim first.", Command: "kubectl delete pvc -n " +
				strings.Replace(arg(claim), "/", " ", 1)}), nil
	case v.DeletionTimestamp != nil:
		if f := finalizerFinding(ref, "is still terminating", v); f != nil {
			return f, nil
		}
	case v.Status.Phase == corev1.VolumeFailed:
		return broken(ref, "has failed", "its reclamation failed: "+v.Status.Message, "status.message",
				describeRemedy(ref)),
			nil
	case v.Status.Phase == corev1.VolumeReleased:
		return broken(ref, "cannot be bound", fmt.Sprintf("its former claim %s was deleted and its data is kept",
			claim),
			"status.phase, spec.persistentVolumeReclaimPolicy", Remedy{
				Text:    "Save the data, and remove the reference to the former claim.",
				Field:   "spec.claimRef of " + ref.String(),
				Command: `kubectl patch pv ` + v.Name + ` -p '{"spec":{"claimRef":null}}'`}), nil
	case v.Status.Phase == corev1.VolumeBound:
		return healthy("is bound to claim %s", claim), nil
	}
	return healthy("is %s", strings.ToLower(string(v.Status.Phase))), nil
}

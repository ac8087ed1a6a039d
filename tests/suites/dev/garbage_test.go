package dev

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func ownerReferences(by metav1.Object, apiVersion, kind string, block bool) []metav1.OwnerReference {
	return []metav1.OwnerReference{
		{APIVersion: apiVersion, Kind: kind, Name: by.GetName(), UID: by.GetUID(), BlockOwnerDeletion: &block},
	}
}

func createConfigMap(t *testing.T, ns, name string, owners []metav1.OwnerReference,
	finalizers ...string) *corev1.ConfigMap {
	t.Helper()
	return must[*corev1.ConfigMap](t)(sharedClient.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			OwnerReferences: owners,
			Finalizers:      finalizers,
		}}, metav1.CreateOptions{}))
}

func deleteConfigMap(t *testing.T, ns, name string, policy metav1.DeletionPropagation) {
	t.Helper()
	if err := sharedClient.CoreV1().ConfigMaps(ns).Delete(t.Context(), name,
		metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
}

func awaitConfigMapGone(t *testing.T, ns, name string) {
	t.Helper()
	waitFor(t, name+" to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().ConfigMaps(ns).Get(ctx, name, metav1.GetOptions{}))
	})
}

// A chain of owners of several kinds is deleted from its beginning to its end.
// Proves S21.
func TestBackgroundDeletionFollowsAChainAcrossKinds(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	root := createConfigMap(t, ns, "root", nil)
	secret := must[*corev1.Secret](t)(sharedClient.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:            "middle",
			OwnerReferences: ownerReferences(root, "v1", "ConfigMap", false),
		}}, metav1.CreateOptions{}))
	must[*corev1.ServiceAccount](t)(sharedClient.CoreV1().ServiceAccounts(ns).Create(t.Context(),
		&corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{
				Name:            "end",
				OwnerReferences: ownerReferences(secret, "v1", "Secret", false),
			}}, metav1.CreateOptions{}))
	createConfigMap(t, ns, "bystander", nil)
	deleteConfigMap(t, ns, "root", metav1.DeletePropagationBackground)
	waitFor(t, "the end of the chain to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().ServiceAccounts(ns).Get(ctx, "end", metav1.GetOptions{}))
	})
	must[*corev1.ConfigMap](t)(sharedClient.CoreV1().ConfigMaps(ns).Get(t.Context(), "bystander", metav1.GetOptions{}))
}

// Proves S21.
func TestForegroundDeletionWaitsForBlockingDependents(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	root := createConfigMap(t, ns, "root", nil)
	createConfigMap(t, ns, "child", ownerReferences(root, "v1", "ConfigMap", true), "example.com/hold")
	createConfigMap(t, ns, "loose", ownerReferences(root, "v1", "ConfigMap", false))
	deleteConfigMap(t, ns, "root", metav1.DeletePropagationForeground)
	waitFor(t, "the child to be on its way", func(ctx context.Context) (bool, any) {
		c, err := sharedClient.CoreV1().ConfigMaps(ns).Get(ctx, "child", metav1.GetOptions{})
		return err == nil && c.DeletionTimestamp != nil, err
	})
	holdFor(t, "the owner went before what blocks it", func(ctx context.Context) (bool, any) {
		_, err := sharedClient.CoreV1().ConfigMaps(ns).Get(ctx, "root", metav1.GetOptions{})
		return err == nil, err
	})
	if _, err := sharedClient.CoreV1().ConfigMaps(ns).Patch(t.Context(), "child", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitConfigMapGone(t, ns, "child")
	awaitConfigMapGone(t, ns, "root")
	awaitConfigMapGone(t, ns, "loose")
}

// Proves S21.
func TestAForegroundDeletionOfADeploymentEndsWithItsPods(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 2, nil)
	awaitRollout(t, ns)
	if err := sharedClient.AppsV1().Deployments(ns).Delete(t.Context(), "web",
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the deployment to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{}))
	})
	if n := len(podsOf(t, ns, "")) + len(replicaSets(t, ns)); n != 0 {
		t.Errorf("%d pods and sets are left when the deployment is gone", n)
	}
}

// Orphans keep running, and a new owner with their selector adopts them.
// Proves S21.
func TestOrphansStayAndAreAdoptedAgain(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 2, nil)
	awaitRollout(t, ns)
	before := replicaSets(t, ns)[0]
	if err := sharedClient.AppsV1().Deployments(ns).Delete(t.Context(), "web",
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the deployment to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.AppsV1().Deployments(ns).Get(ctx, "web", metav1.GetOptions{}))
	})
	holdFor(t, "an orphan went", func(context.Context) (bool, any) {
		s := replicaSets(t, ns)
		return len(s) == 1 && len(s[0].OwnerReferences) == 0 && s[0].DeletionTimestamp == nil &&
			len(podsOf(t, ns, "app=web")) == 2, s
	})
	again := createDeployment(t, ns, 2, nil)
	awaitRollout(t, ns)
	if after := replicaSets(t, ns); len(after) != 1 || after[0].UID != before.UID ||
		!metav1.IsControlledBy(&after[0], again) {
		t.Errorf("sets after the new deployment: %v", after)
	}
}

// An object with another living owner stays when the first owner is deleted, and the dead reference is removed.
// Proves S21.
func TestObjectsWithAnotherOwnerStay(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	one, two := createConfigMap(t, ns, "one", nil), createConfigMap(t, ns, "two", nil)
	createConfigMap(t, ns, "shared",
		append(ownerReferences(one, "v1", "ConfigMap", false), ownerReferences(two, "v1", "ConfigMap", false)...))
	deleteConfigMap(t, ns, "one", metav1.DeletePropagationBackground)
	waitFor(t, "the dead reference to go", func(ctx context.Context) (bool, any) {
		c := must[*corev1.ConfigMap](t)(sharedClient.CoreV1().ConfigMaps(ns).Get(ctx, "shared", metav1.GetOptions{}))
		return len(c.OwnerReferences) == 1 && c.OwnerReferences[0].UID == two.UID &&
			c.DeletionTimestamp == nil, c.OwnerReferences
	})
	deleteConfigMap(t, ns, "two", metav1.DeletePropagationBackground)
	awaitConfigMapGone(t, ns, "shared")
}

// An owner that never existed counts as deleted. An owner of a kind that is not served may return.
// Proves S21.
func TestDependentsOfMissingOwnersAreDeleted(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	never := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "never", UID: "11111111-2222-3333-4444-555555555555"},
	}
	createConfigMap(t, ns, "dangling", ownerReferences(never, "v1", "ConfigMap", false))
	createConfigMap(t, ns, "strange", ownerReferences(never, "example.com/v1", "Widget", false))
	// A cluster-scoped object with the same name and another UID is another object.
	other := must[*corev1.ConfigMap](t)(
		sharedClient.CoreV1().
			ConfigMaps(ns).
			Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}},
				metav1.CreateOptions{}),
	)
	other.UID = never.UID
	createConfigMap(t, ns, "mistaken", ownerReferences(other, "v1", "ConfigMap", false))
	awaitConfigMapGone(t, ns, "dangling")
	awaitConfigMapGone(t, ns, "mistaken")
	holdFor(t, "an object went whose owner's kind is not served", func(ctx context.Context) (bool, any) {
		c, err := sharedClient.CoreV1().ConfigMaps(ns).Get(ctx, "strange", metav1.GetOptions{})
		return err == nil && c.DeletionTimestamp == nil, err
	})
}

// A cluster-scoped object cannot have an owner in a namespace. Such an owner cannot be looked up, so it does not count
// as deleted.
// Proves S21.
func TestClusterScopedObjectsWithNamespacedOwnersStay(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	alive := createConfigMap(t, ns, "alive", nil)
	never := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "never", UID: "21111111-2222-3333-4444-555555555555"},
	}
	for _, owner := range []*corev1.ConfigMap{alive, never} {
		name := ns + "-of-" + owner.Name
		role := must[*rbacv1.ClusterRole](t)(sharedClient.RbacV1().ClusterRoles().Create(t.Context(),
			&rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{
					Name:            name,
					OwnerReferences: ownerReferences(owner, "v1", "ConfigMap", true),
				}}, metav1.CreateOptions{}))
		t.Cleanup(func() {
			_ = sharedClient.RbacV1().ClusterRoles().Delete(context.WithoutCancel(t.Context()), name,
				metav1.DeleteOptions{})
		})
		waitFor(t, "the event about "+name, func(ctx context.Context) (bool, any) {
			list := must[*corev1.EventList](t)(sharedClient.CoreV1().Events("default").List(ctx, metav1.ListOptions{
				FieldSelector: "reason=OwnerRefInvalidNamespace,involvedObject.name=" + name}))
			return len(list.Items) == 1 && list.Items[0].Type == corev1.EventTypeWarning &&
				list.Items[0].InvolvedObject.UID == role.UID, list.Items
		})
	}
	// Such a dependent is not deleted with the owner, and does not delay the deletion of the owner.
	deleteConfigMap(t, ns, "alive", metav1.DeletePropagationForeground)
	awaitConfigMapGone(t, ns, "alive")
	holdFor(t, "a cluster-scoped object went with an owner that it cannot have", func(ctx context.Context) (bool, any) {
		for _, name := range []string{"alive", "never"} {
			if r, err := sharedClient.RbacV1().ClusterRoles().Get(ctx, ns+"-of-"+name,
				metav1.GetOptions{}); err != nil ||
				r.DeletionTimestamp != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// Objects that own each other in a cycle are deleted, whichever of them is deleted first, and if all are.
// Proves S21.
func TestAForegroundDeletionBreaksCirclesOfOwners(t *testing.T) {
	t.Parallel()
	for _, deleted := range [][]string{{"a"}, {"b"}, {"c", "a", "b"}} {
		ns := createNamespace(t)
		a := createConfigMap(t, ns, "a", nil)
		b := createConfigMap(t, ns, "b", ownerReferences(a, "v1", "ConfigMap", true))
		c := createConfigMap(t, ns, "c", ownerReferences(b, "v1", "ConfigMap", true))
		a.OwnerReferences = ownerReferences(c, "v1", "ConfigMap", true)
		must[*corev1.ConfigMap](t)(sharedClient.CoreV1().ConfigMaps(ns).Update(t.Context(), a, metav1.UpdateOptions{}))
		for _, name := range deleted {
			err := sharedClient.CoreV1().
				ConfigMaps(ns).
				Delete(t.Context(), name,
					metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
			if err != nil && !apierrors.IsNotFound(err) { // it may have been deleted with the previous one
				t.Fatal(err)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			awaitConfigMapGone(t, ns, name)
		}
	}
}

// If a Deployment is deleted in the background, its ReplicaSets and their pods are deleted too.
// Proves S21.
func TestDeletingAReplicaSetInTheBackgroundEndsItsPods(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 3,
		func(d *appsv1.Deployment) { d.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0) })
	awaitRollout(t, ns)
	if err := sharedClient.AppsV1().Deployments(ns).Delete(t.Context(), "web",
		metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "sets and pods to go", func(context.Context) (bool, any) {
		n := len(podsOf(t, ns, "")) + len(replicaSets(t, ns))
		return n == 0, n
	})
}

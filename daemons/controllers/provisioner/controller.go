package provisioner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/api/storage"
	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
)

type controller struct {
	loop.Context
	loop.Loop // keys are namespace/name for claims, and the name for volumes
	claims    corelisters.PersistentVolumeClaimLister
	volumes   corelisters.PersistentVolumeLister
	classes   storagelisters.StorageClassLister
	// attributes lists VolumeAttributesClasses.
	attributes storagelisters.VolumeAttributesClassLister
	// grow asks a node's kubelet to raise the size limit of a volume's directory to a number of bytes.
	grow func(ctx context.Context, node, volume string, bytes int64) error
	// remove asks a node's kubelet to remove a volume's directory. It returns nil once the directory is gone.
	remove     func(ctx context.Context, node string, v *corev1.PersistentVolume) error
	usedClaims usedClaims
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	claims, volumes, nodes, pods := informers.PersistentVolumeClaims(c.Informers), informers.PersistentVolumes(
		c.Informers,
	), informers.Nodes(c.Informers), informers.Pods(c.Informers)
	classes := informers.StorageClasses(c.Informers)
	attributes := informers.VolumeAttributesClasses(c.Informers)
	p := &controller{
		Context:    c,
		claims:     claims.Lister(),
		volumes:    volumes.Lister(),
		classes:    classes.Lister(),
		attributes: attributes.Lister(),
	}
	p.grow, p.remove = p.requestGrowth, p.requestRemoval
	p.Loop = loop.Loop{Name: "directory-provisioner", Context: c, Sync: p.sync, Synced: []cache.InformerSynced{
		claims.Informer().HasSynced, volumes.Informer().HasSynced, classes.Informer().HasSynced,
		attributes.Informer().HasSynced}}
	c.OnChange(claims.Informer(), func(old, obj any) {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok {
			p.Add(claim)
		} else if deleted, ok := old.(*corev1.PersistentVolumeClaim); ok {
			p.usedClaims.delete(deleted.Namespace + "/" + deleted.Name)
		}
	})
	c.OnChange(pods.Informer(), func(_, obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			for _, key := range p.usedClaims.mountedClaims(pod) {
				p.Queue().Add(key)
			}
		}
	})
	c.OnChange(volumes.Informer(), func(_, obj any) {
		if v, ok := obj.(*corev1.PersistentVolume); ok && DecideVolume(v) != ActionNone {
			p.Add(v)
		}
	})
	c.OnChange(classes.Informer(), func(_, obj any) { p.classChanged(obj) })
	c.OnChange(attributes.Informer(), func(_, obj any) {
		if class, ok := obj.(*storagev1.VolumeAttributesClass); ok {
			p.attributesChanged(class.Name)
		}
	})
	c.OnChange(nodes.Informer(), func(old, obj any) {
		if node, ok := obj.(*corev1.Node); ok && old == nil {
			p.nodeAdded(node.Name)
		}
	})
	return p
}

// attributesChanged queues the claims that use a VolumeAttributesClass.
func (p *controller) attributesChanged(name string) {
	claims, err := p.claims.List(labels.Everything())
	if err != nil {
		return
	}
	for _, claim := range claims {
		if c := claim.Spec.VolumeAttributesClassName; c != nil && *c == name {
			p.Add(claim)
		}
	}
}

// classChanged queues the claims of a StorageClass.
func (p *controller) classChanged(obj any) {
	class, ok := obj.(*storagev1.StorageClass)
	if !ok || class.Provisioner != directory.Provisioner {
		return
	}
	claims, err := p.claims.List(labels.Everything())
	if err != nil {
		return
	}
	for _, claim := range claims {
		if storage.GetPersistentVolumeClaimClass(claim) == class.Name {
			p.Add(claim)
		}
	}
}

// nodeAdded queues the volumes that could not be removed while their node did not exist.
func (p *controller) nodeAdded(name string) {
	volumes, err := p.volumes.List(labels.Everything())
	if err != nil {
		return
	}
	for _, v := range volumes {
		if v.Annotations[directory.NodeAnnotation] == name && DecideVolume(v) == ActionRemove {
			p.Add(v)
		}
	}
}

func (p *controller) sync(ctx context.Context, key string) error {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return p.syncClaim(ctx, namespace, name)
	}
	return p.syncVolume(ctx, key)
}

func (p *controller) syncClaim(ctx context.Context, namespace, name string) error {
	claim, err := p.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if claim.Spec.VolumeName != "" {
		return p.updateVolume(ctx, claim)
	}
	class, err := p.classes.Get(storage.GetPersistentVolumeClaimClass(claim))
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if !needsVolume(claim, class) {
		return nil
	}
	// Read the claim from the API server: a volume for a claim that is gone or already bound would have to be removed
	// again.
	live, err := p.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (live.UID != claim.UID || !needsVolume(live, class)) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read claim %s/%s: %w", namespace, name, err)
	}
	return p.provision(ctx, live, class)
}

// updateVolume adapts the volume of a bound claim to the claim's present spec.
func (p *controller) updateVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	v, err := p.volumes.Get(claim.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if !directory.IsProvisioned(v) {
		p.usedClaims.delete(claim.Namespace + "/" + claim.Name)
		return nil
	}
	if !isBound(claim, v) {
		return nil
	}
	if err := p.markUsed(ctx, claim, v); err != nil {
		return err
	}
	if claim, err = p.modifyAttributes(ctx, claim); err != nil || claim == nil {
		return err
	}
	return p.expand(ctx, claim, v)
}

func (p *controller) provision(
	ctx context.Context,
	claim *corev1.PersistentVolumeClaim,
	class *storagev1.StorageClass,
) error {
	var node *corev1.Node
	if chosen := claim.Annotations[storage.AnnSelectedNode]; chosen != "" {
		got, err := p.Client.CoreV1().Nodes().Get(ctx, chosen, metav1.GetOptions{})
		if err != nil && !loop.IsAbsent(err, "nodes", chosen) {
			return fmt.Errorf("read node %s: %w", chosen, err)
		} else if err == nil {
			node = got
		}
	}
	v, err := NewVolume(claim, class, node)
	if err != nil {
		p.Events.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed",
			"failed to provision volume with StorageClass %q: %v", class.Name, err)
		if errors.Is(err, errOtherNodeNeeded) {
			return p.clearSelectedNode(ctx, claim)
		}
		return nil // until the claim or its class changes
	}
	if _, err := p.volumes.Get(v.Name); err == nil {
		return nil // it waits to be bound
	}
	p.Events.Eventf(claim, corev1.EventTypeNormal, "Provisioning",
		"External provisioner is provisioning volume for claim %q", claim.Namespace+"/"+claim.Name)
	_, err = p.Client.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // created before, and not yet in the cache
	} else if err != nil {
		p.Events.Eventf(claim, corev1.EventTypeWarning, "ProvisioningFailed", "Error saving volume: %v", err)
		return fmt.Errorf("create volume %s: %w", v.Name, err)
	}
	p.Events.Eventf(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s",
		v.Name)
	return nil
}

// clearSelectedNode removes the selected node from a claim, so that the scheduler selects another.
func (p *controller) clearSelectedNode(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	updated := claim.DeepCopy()
	delete(updated.Annotations, storage.AnnSelectedNode)
	if _, err := p.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, updated,
		metav1.UpdateOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("have another node chosen for claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/storage"
)

// NoProvisioner is the provisioner of classes whose volumes are created by hand.
const NoProvisioner = "kubernetes.io/no-provisioner"

// Storage holds claims, volumes, and what drivers can attach. It includes decisions that the API does not show yet.
type Storage struct {
	claims      map[string]*corev1.PersistentVolumeClaim // by namespace/name
	volumes     map[string]*PersistentVolume
	byClass     map[string]map[string]*PersistentVolume
	classes     map[string]*storagev1.StorageClass
	drivers     map[string]*storagev1.CSIDriver
	nodeDrivers map[string]*NodeDrivers

	capacities map[string]map[string]*Capacity  // by class, then by namespace/name
	attached   map[string]map[string]attachment // by node, then by the name of the VolumeAttachment

	reservedFor   map[string]string // by volume: the claim that it is being given to
	selectedNodes map[string]string // by claim: the node for which its volume will be provisioned
}

// PersistentVolume is a volume with its node affinity as a compiled selector.
type PersistentVolume struct {
	*corev1.PersistentVolume
	nodeAffinity    *nodeaffinity.NodeSelector
	invalidAffinity bool // its node affinity is invalid

	inTree inTreeVolume
}

func newStorage() *Storage {
	return &Storage{
		claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*PersistentVolume{},
		byClass: map[string]map[string]*PersistentVolume{},
		classes: map[string]*storagev1.StorageClass{}, drivers: map[string]*storagev1.CSIDriver{},
		nodeDrivers: map[string]*NodeDrivers{},
		capacities:  map[string]map[string]*Capacity{}, attached: map[string]map[string]attachment{},
		reservedFor: map[string]string{}, selectedNodes: map[string]string{},
	}
}

// Set adds or updates a claim, volume, class, CSIDriver, CSINode, CSIStorageCapacity or VolumeAttachment.
func (s *Storage) Set(obj any) {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		s.claims[o.Namespace+"/"+o.Name] = o
	case *corev1.PersistentVolume:
		s.Delete(o)
		v := &PersistentVolume{PersistentVolume: o, inTree: inTreeOfVolume(o)}
		if a := o.Spec.NodeAffinity; a != nil && a.Required != nil {
			var err error
			if v.nodeAffinity, err = nodeaffinity.NewNodeSelector(a.Required); err != nil {
				v.invalidAffinity = true
			}
		}
		s.volumes[o.Name] = v
		class := storage.GetPersistentVolumeClass(o)
		if s.byClass[class] == nil {
			s.byClass[class] = map[string]*PersistentVolume{}
		}
		s.byClass[class][o.Name] = v
	case *storagev1.StorageClass:
		s.classes[o.Name] = o
	case *storagev1.CSIDriver:
		s.drivers[o.Name] = o
	case *storagev1.CSINode:
		s.nodeDrivers[o.Name] = newNodeDrivers(o)
	case *storagev1.CSIStorageCapacity:
		s.setCapacity(o)
	case *storagev1.VolumeAttachment:
		s.attach(o)
	}
}

// Delete removes such an object.
func (s *Storage) Delete(obj any) {
	switch o := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		delete(s.claims, o.Namespace+"/"+o.Name)
	case *corev1.PersistentVolume:
		if old := s.volumes[o.Name]; old != nil {
			class := storage.GetPersistentVolumeClass(old.PersistentVolume)
			delete(s.volumes, o.Name)
			if delete(s.byClass[class], o.Name); len(s.byClass[class]) == 0 {
				delete(s.byClass, class)
			}
		}
	case *storagev1.StorageClass:
		delete(s.classes, o.Name)
	case *storagev1.CSIDriver:
		delete(s.drivers, o.Name)
	case *storagev1.CSINode:
		delete(s.nodeDrivers, o.Name)
	case *storagev1.CSIStorageCapacity:
		s.deleteCapacity(o)
	case *storagev1.VolumeAttachment:
		s.detach(o)
	}
}

// Claim returns a claim, or nil.
func (s *Storage) Claim(namespace, name string) *corev1.PersistentVolumeClaim {
	return s.claims[namespace+"/"+name]
}

// Volume returns a volume, or nil.
func (s *Storage) Volume(name string) *PersistentVolume { return s.volumes[name] }

// ClassOf returns the class of a claim, or nil if it has none that exists.
func (s *Storage) ClassOf(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	return s.classes[storage.GetPersistentVolumeClaimClass(claim)]
}

// IsBound reports whether a claim is completely bound to a volume.
func IsBound(claim *corev1.PersistentVolumeClaim) bool {
	_, completed := claim.Annotations[storage.AnnBindCompleted]
	return claim.Spec.VolumeName != "" && completed
}

// WaitsForPod reports whether an unbound claim is bound only after a pod that uses it has a node.
func (s *Storage) WaitsForPod(claim *corev1.PersistentVolumeClaim) bool {
	class := s.ClassOf(claim)
	return claim.Spec.VolumeName == "" && class != nil && class.VolumeBindingMode != nil &&
		*class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// IsReachable reports whether a volume's node affinity admits a node. Only the node's labels count.
func (v *PersistentVolume) IsReachable(n *Node) bool {
	switch {
	case v.invalidAffinity:
		return false
	case v.nodeAffinity == nil:
		return true
	}
	return v.nodeAffinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: n.Labels}})
}

// Decision is the result for a claim if its pod goes to a node: an existing volume, or a new one.
type Decision struct {
	Claim    *corev1.PersistentVolumeClaim
	Volume   *PersistentVolume // nil if it has to be provisioned
	Capacity *Capacity         // capacity in which it is provisioned, if its driver reports capacity
}

// Verdict reports whether all claims get a volume on a node.
type Verdict int

// Verdicts about claims.
const (
	AllClaimsServed  Verdict = iota
	NoVolume                 // no volume, and no provisioner that can create one
	CapacityTooSmall         // there is a provisioner without enough capacity
)

// Decide selects a volume on a node for each unbound claim, or decides that it is provisioned. The smallest claim comes
// first, and each gets the smallest suitable volume. Claims that have a selected node get new volumes.
func (s *Storage) Decide(claims []*corev1.PersistentVolumeClaim, n *Node) ([]Decision, Verdict) {
	if len(claims) == 0 {
		return nil, AllClaimsServed
	}
	var match, make []*corev1.PersistentVolumeClaim
	for _, claim := range claims {
		switch chosen, ok := s.provisioningNode(claim); {
		case !ok:
			match = append(match, claim)
		case chosen != n.Name:
			return nil, NoVolume
		default:
			make = append(make, claim)
		}
	}
	slices.SortStableFunc(match, func(a, b *corev1.PersistentVolumeClaim) int {
		return a.Spec.Resources.Requests.Storage().Cmp(*b.Spec.Resources.Requests.Storage())
	})
	var decisions []Decision
	given := map[string]bool{}
	for _, claim := range match {
		v := s.match(claim, n, given)
		if v == nil {
			make = append(make, claim)
			continue
		}
		given[v.Name] = true
		decisions = append(decisions, Decision{Claim: claim, Volume: v})
	}
	for _, claim := range make {
		class := s.ClassOf(claim)
		if class == nil || class.Provisioner == NoProvisioner || !api.InTopologies(class.AllowedTopologies, n.Labels) {
			return nil, NoVolume
		}
		free, enough := s.capacityFor(class, claim, n)
		if !enough {
			return nil, CapacityTooSmall
		}
		decisions = append(decisions, Decision{Claim: claim, Capacity: free})
	}
	return decisions, AllClaimsServed
}

// provisioningNode returns the node for which a claim's volume is provisioned.
func (s *Storage) provisioningNode(claim *corev1.PersistentVolumeClaim) (string, bool) {
	if node, ok := claim.Annotations[storage.AnnSelectedNode]; ok {
		return node, true
	}
	node, ok := s.selectedNodes[claim.Namespace+"/"+claim.Name]
	return node, ok
}

// match returns the volume that is reserved for the claim, or else the smallest suitable available one. It must be
// large enough and have the claim's class, modes and attributes class. It must match the claim's selector and be
// reachable from the node.
func (s *Storage) match(claim *corev1.PersistentVolumeClaim, n *Node, given map[string]bool) *PersistentVolume {
	var best *PersistentVolume
	key := claim.Namespace + "/" + claim.Name
	want := claim.Spec.Resources.Requests.Storage()
	var selector labels.Selector
	if claim.Spec.Selector != nil {
		selector = compileSelector(claim.Spec.Selector)
	}
	for name, v := range s.byClass[storage.GetPersistentVolumeClaimClass(claim)] {
		ref := v.Spec.ClaimRef
		mine := ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name &&
			(ref.UID == "" || ref.UID == claim.UID)
		if by, taken := s.reservedFor[name]; given[name] || taken && by != key || ref != nil && !mine ||
			v.DeletionTimestamp != nil ||
			v.Spec.Capacity.Storage().Cmp(*want) < 0 ||
			volumeMode(v.Spec.VolumeMode) != volumeMode(claim.Spec.VolumeMode) ||
			stringOrEmpty(v.Spec.VolumeAttributesClassName) != stringOrEmpty(claim.Spec.VolumeAttributesClassName) {
			continue
		}
		if mine {
			if !v.IsReachable(n) {
				return nil
			}
			return v
		}
		if v.Status.Phase != corev1.VolumeAvailable || selector != nil && !selector.Matches(labels.Set(v.Labels)) ||
			slices.ContainsFunc(claim.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
				return !slices.Contains(v.Spec.AccessModes, m)
			}) || !v.IsReachable(n) {
			continue
		}
		if best == nil {
			best = v
			continue
		}
		if c := v.Spec.Capacity.Storage().Cmp(*best.Spec.Capacity.Storage()); c < 0 || c == 0 && v.Name < best.Name {
			best = v
		}
	}
	return best
}

// Reserve counts decisions as done before the API shows them.
func (s *Storage) Reserve(decisions []Decision, node string) {
	for _, d := range decisions {
		key := d.Claim.Namespace + "/" + d.Claim.Name
		if d.Volume != nil {
			s.reservedFor[d.Volume.Name] = key
		} else {
			s.selectedNodes[key] = node
		}
	}
}

// Release reverts Reserve after the decisions were written or have failed.
func (s *Storage) Release(decisions []Decision) {
	for _, d := range decisions {
		key := d.Claim.Namespace + "/" + d.Claim.Name
		if d.Volume != nil {
			if s.reservedFor[d.Volume.Name] == key {
				delete(s.reservedFor, d.Volume.Name)
			}
		} else {
			delete(s.selectedNodes, key)
		}
	}
}

func volumeMode(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

func stringOrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

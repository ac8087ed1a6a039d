package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Records stores the credentials with which the images of a node were pulled, so that a pod uses only images that it
// could pull itself. This is the feature gate KubeletEnsureSecretPulledImages of Kubernetes. The records have the
// format of upstream's kubelet, so both kubelets can read them. The methods are safe for concurrent use.
type Records struct {
	Policy Policy
	Store  Store

	mu           sync.Mutex
	runningPulls map[string]int // number of running pulls, by the image name in the container's spec
}

// Store keeps small files in folders. Read returns nil for a file that does not exist.
type Store interface {
	Read(folder, name string) ([]byte, error)
	Write(folder, name string, data []byte) error
	Remove(folder, name string) error
	List(folder string) ([]string, error)
}

// These constants are the folders of a Store, and the version of the files in them.
const (
	pulledFolder  = "pulled"  // records of pulled images
	pullingFolder = "pulling" // started pulls
	apiVersion    = "kubelet.config.k8s.io/v1beta1"
)

// intent records that the kubelet is about to pull an image. An image with an intent but without a record was probably
// pulled by the kubelet.
type intent struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Image      string `json:"image"`
}

// record states with which credentials an image was pulled.
type record struct {
	Kind            string                 `json:"kind"`
	APIVersion      string                 `json:"apiVersion"`
	LastUpdatedTime metav1.Time            `json:"lastUpdatedTime"`
	ImageRef        string                 `json:"imageRef"` // the image's id in the runtime
	Credentials     map[string]imageAccess `json:"credentialMapping,omitempty"`
}

// imageAccess states which pods may use an image under one name.
type imageAccess struct {
	Secrets []SecretRef `json:"kubernetesSecrets,omitempty"`
	All     bool        `json:"nodePodsAccessible,omitempty"` // all pods, because no pod credential was needed
}

// SecretRef identifies the credential of a pull secret.
type SecretRef struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Hash      string `json:"credentialHash"`
}

// isSameSecret reports whether two references are to the same secret, regardless of its content.
func (s SecretRef) isSameSecret(o SecretRef) bool {
	return s.UID == o.UID && s.Namespace == o.Namespace && s.Name == o.Name
}

// fileName returns the name of an image's file. It is a digest, because image names contain characters that file names
// cannot.
func fileName(image string) string {
	sum := sha256.Sum256([]byte(image))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// Begin records that an image is about to be pulled. Call End when the pull is over.
func (r *Records) Begin(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.write(pullingFolder, image, intent{"ImagePullIntent", apiVersion, image}); err != nil {
		return fmt.Errorf("note the pull of image %q: %w", image, err)
	}
	if r.runningPulls == nil {
		r.runningPulls = map[string]int{}
	}
	r.runningPulls[image]++
	return nil
}

// End records the end of a pull. ref is the image's id, or empty if the pull failed. with is the credential that
// succeeded, or nil if none was needed. If the record cannot be written, the entry that Begin wrote stays, so that no
// pod may use the image without pulling it.
func (r *Records) End(image, ref string, with *Credential) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runningPulls[image]--; r.runningPulls[image] <= 0 {
		delete(r.runningPulls, image)
	}
	if ref != "" {
		if err := r.add(image, ref, with); err != nil {
			return err
		}
	}
	if r.runningPulls[image] > 0 {
		return nil
	}
	return r.Store.Remove(pullingFolder, fileName(image))
}

// CanUse reports whether a pod may use an image on the node without pulling it. credentials returns the pod's
// credentials for the image, and is called only if they are needed.
func (r *Records) CanUse(image, ref string, credentials func() ([]Credential, error)) (bool, error) {
	open, records, err := r.findAccess(image, ref)
	if open || err != nil || len(records) == 0 {
		return open, err
	}
	offered, err := credentials()
	if err != nil {
		return false, err
	}
	for _, c := range offered {
		for _, s := range records {
			same := s.Hash != "" && s.Hash == c.Secret.Hash
			if same && s.isSameSecret(c.Secret) {
				return true, nil
			}
			if same || s.isSameSecret(c.Secret) {
				// The same credential in another secret, or a new credential in the same secret: record it too.
				r.mu.Lock()
				defer r.mu.Unlock()
				return true, r.add(image, ref, &c)
			}
		}
	}
	return false, nil
}

// findAccess reports whether every pod may use an image. Otherwise it returns the secrets with which the image was
// pulled.
func (r *Records) findAccess(image, ref string) (open bool, secrets []SecretRef, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current, err := r.read(ref)
	if err != nil {
		return false, nil, err
	}
	ours := current != nil
	if !ours {
		started, err := r.Store.Read(pullingFolder, fileName(image))
		if err != nil {
			return false, nil, err
		}
		ours = started != nil
	}
	if !r.Policy.needsProof(image, ours) {
		return true, nil, nil
	}
	if current == nil {
		return false, nil, nil
	}
	credentials := current.Credentials[Untagged(image)]
	return credentials.All, credentials.Secrets, nil
}

// maxSecrets limits the secrets per name in a record. Older ones are dropped, and their pods pull the image again.
const maxSecrets = 100

// add records that a credential can pull an image. If with is nil or a credential of the node, every pod may use the
// image. The caller holds mu.
func (r *Records) add(image, ref string, with *Credential) error {
	current, err := r.read(ref)
	if err != nil || current == nil {
		// An unreadable record is replaced.
		current = &record{Kind: "ImagePulledRecord", APIVersion: apiVersion, ImageRef: ref}
	}
	if current.Credentials == nil {
		current.Credentials = map[string]imageAccess{}
	}
	name := Untagged(image)
	credentials := current.Credentials[name]
	switch {
	case credentials.All:
		return nil
	case with == nil || with.Secret == (SecretRef{}):
		credentials = imageAccess{All: true}
	default:
		credentials.Secrets = slices.DeleteFunc(credentials.Secrets,
			func(s SecretRef) bool { return s.isSameSecret(with.Secret) })
		credentials.Secrets = append(credentials.Secrets, with.Secret)
		credentials.Secrets = credentials.Secrets[max(0, len(credentials.Secrets)-maxSecrets):]
	}
	current.Credentials[name] = credentials
	current.LastUpdatedTime = metav1.Now()
	if err := r.write(pulledFolder, ref, current); err != nil {
		return fmt.Errorf("record the pull of image %q: %w", image, err)
	}
	return nil
}

// Recover records the pulls that the previous kubelet had started. If the image exists, the credentials of its pull are
// unknown. find returns the id of an image, or "" if the node does not have it.
func (r *Records) Recover(find func(image string) (string, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	names, err := r.Store.List(pullingFolder)
	if err != nil {
		return fmt.Errorf("read which images were being pulled: %w", err)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, r.recoverPull(name, find))
	}
	return errors.Join(errs...)
}

func (r *Records) recoverPull(name string, find func(image string) (string, error)) error {
	data, err := r.Store.Read(pullingFolder, name)
	if err != nil {
		return err
	}
	var started intent
	if err := json.Unmarshal(data, &started); err != nil || r.runningPulls[started.Image] > 0 {
		return err
	}
	ref, err := find(started.Image)
	if err != nil {
		return err
	}
	if ref != "" {
		if current, err := r.read(ref); err == nil && current == nil {
			unknown := record{Kind: "ImagePulledRecord", APIVersion: apiVersion, ImageRef: ref,
				LastUpdatedTime: metav1.Now(),
				Credentials:     map[string]imageAccess{Untagged(started.Image): {}}}
			if err := r.write(pulledFolder, ref, unknown); err != nil {
				return err
			}
		}
	}
	return r.Store.Remove(pullingFolder, name)
}

// Prune deletes the records of images that the node no longer has. It calls has for each id that is not in refs,
// because a list of images may be incomplete. Without its record, an image may be used by all pods.
func (r *Records) Prune(refs map[string]bool, isPresent func(ref string) (bool, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	names, err := r.Store.List(pulledFolder)
	if err != nil {
		return fmt.Errorf("read the records of pulled images: %w", err)
	}
	kept := map[string]bool{}
	for ref := range refs {
		kept[fileName(ref)] = true
	}
	var errs []error
	for _, name := range names {
		if !kept[name] {
			errs = append(errs, r.pruneRecord(name, isPresent))
		}
	}
	return errors.Join(errs...)
}

func (r *Records) pruneRecord(name string, isPresent func(ref string) (bool, error)) error {
	data, err := r.Store.Read(pulledFolder, name)
	if err != nil || data == nil {
		return err
	}
	var current record
	if err := json.Unmarshal(data, &current); err != nil {
		return fmt.Errorf("record %s of a pulled image cannot be read: %w", name, err)
	}
	if exists, err := isPresent(current.ImageRef); err != nil || exists {
		return err
	}
	return r.Store.Remove(pulledFolder, name)
}

// read returns the record of an image, or nil if there is none. The caller holds mu.
func (r *Records) read(ref string) (*record, error) {
	data, err := r.Store.Read(pulledFolder, fileName(ref))
	if err != nil || data == nil {
		return nil, err
	}
	var current record
	if err := json.Unmarshal(data, &current); err != nil {
		return nil, fmt.Errorf("the record of image %s cannot be read: %w", ref, err)
	}
	return &current, nil
}

func (r *Records) write(folder, image string, what any) error {
	data, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return r.Store.Write(folder, fileName(image), data)
}

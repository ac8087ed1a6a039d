package authn

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/accountkey"
)

// privateClaims are what a token says of itself besides the registered claims, as upstream.
type privateClaims struct {
	Kubernetes kubernetesClaims `json:"kubernetes.io"`
}

type kubernetesClaims struct {
	Namespace      string `json:"namespace,omitempty"`
	ServiceAccount ref    `json:"serviceaccount"`
	Pod            *ref   `json:"pod,omitempty"`
	Secret         *ref   `json:"secret,omitempty"`
	Node           *ref   `json:"node,omitempty"`
}

type ref struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

// Extra fields of users known by a token.
const (
	extraPodName  = "authentication.kubernetes.io/pod-name"
	extraPodUID   = "authentication.kubernetes.io/pod-uid"
	extraNodeName = "authentication.kubernetes.io/node-name"
	extraNodeUID  = "authentication.kubernetes.io/node-uid"
)

// deletionLeeway is how long a token outlives what it is bound to, so that a pod
// that is being stopped can still say goodbye and clocks may differ.
const deletionLeeway = time.Minute

const maxRemembered = 8192

var errToken = errors.New("invalid bearer token")

// Tokens verifies and issues service-account tokens.
type Tokens struct {
	keys      *keyFiles
	issuer    string
	audiences []string // of this server
	objects   api.Objects
	now       func() time.Time
	uses      *uses // of those that lie in Secrets

	mu sync.Mutex
	// remembered holds tokens whose signature was found good, by digest. What
	// they are bound to is looked at every time. They are forgotten when the keys change.
	remembered map[[sha256.Size]byte]*claims
	by         *keySet // the keys that they were found good by
}

type claims struct {
	jwt.Claims
	privateClaims
	accountkey.LegacyClaims
}

func newTokens(keys *keyFiles, issuer string, audiences []string, objects api.Objects, now func() time.Time) *Tokens {
	if len(audiences) == 0 {
		audiences = []string{issuer}
	}
	return &Tokens{
		keys:       keys,
		issuer:     issuer,
		audiences:  audiences,
		objects:    objects,
		now:        now,
		uses:       newUses(),
		remembered: map[[sha256.Size]byte]*claims{},
	}
}

// Verify returns whose token it is and for which of the wanted audiences; none
// wanted means this server's.
func (t *Tokens) Verify(token string, wanted []string) (api.User, []string, error) {
	c, err := t.signed(token)
	if err != nil {
		return api.User{}, nil, err
	}
	if c.Issuer == accountkey.LegacyIssuer {
		return t.lies(token, c, wanted)
	}
	if err := c.ValidateWithLeeway(jwt.Expected{Issuer: t.issuer, Time: t.now()}, jwt.DefaultLeeway); err != nil {
		return api.User{}, nil, fmt.Errorf("%w: %v", errToken, err)
	}
	audiences, err := audiencesOf(t.audiences, wanted, c.Audience)
	if err != nil {
		return api.User{}, nil, err
	}
	if err := t.bound(&c.Kubernetes); err != nil {
		return api.User{}, nil, err
	}
	return c.user(), audiences, nil
}

func (t *Tokens) verify(_ context.Context, token string, wanted []string) (api.User, []string, error) {
	return t.Verify(token, wanted)
}

// signed returns the claims of a token with a good signature.
func (t *Tokens) signed(token string) (*claims, error) {
	digest := sha256.Sum256([]byte(token))
	keys := t.keys.get()
	t.mu.Lock()
	if t.by != keys {
		clear(t.remembered)
		t.by = keys
	}
	c := t.remembered[digest]
	t.mu.Unlock()
	if c != nil {
		return c, nil
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.ES512, jose.RS256})
	if err != nil || len(parsed.Headers) != 1 {
		return nil, errToken
	}
	for _, key := range keys.candidates(parsed.Headers[0].KeyID) {
		c := &claims{}
		if parsed.Claims(key.Key, &c.Claims, &c.privateClaims, &c.LegacyClaims) != nil {
			continue
		}
		t.mu.Lock()
		if len(t.remembered) >= maxRemembered {
			clear(t.remembered)
		}
		if t.by == keys {
			t.remembered[digest] = c
		}
		t.mu.Unlock()
		return c, nil
	}
	return nil, errToken
}

// bound says whether all that the token hangs on is still there and the same.
func (t *Tokens) bound(k *kubernetesClaims) error {
	if k.Namespace == "" || k.ServiceAccount.Name == "" {
		return errToken
	}
	if err := t.exists("serviceaccounts", "service account", k.Namespace, &k.ServiceAccount); err != nil {
		return err
	}
	if err := t.exists("secrets", "secret", k.Namespace, k.Secret); err != nil {
		return err
	}
	if err := t.exists("pods", "pod", k.Namespace, k.Pod); err != nil {
		return err
	}
	if k.Pod != nil {
		return nil // the node of a pod's token is said, not demanded
	}
	return t.exists("nodes", "node", "", k.Node)
}

func (t *Tokens) exists(resource, noun, namespace string, r *ref) error {
	if r == nil {
		return nil
	}
	obj, ok := t.objects.Get(schema.GroupResource{Resource: resource}, namespace, r.Name)
	if !ok {
		return fmt.Errorf("%w: %s %s has been deleted", errToken, noun, r.Name)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("read %s %s: %w", noun, r.Name, err)
	}
	if d := m.GetDeletionTimestamp(); d != nil && d.Add(deletionLeeway).Before(t.now()) {
		return fmt.Errorf("%w: %s %s has been deleted", errToken, noun, r.Name)
	}
	if r.UID != "" && string(m.GetUID()) != r.UID {
		return fmt.Errorf("%w: %s UID (%s) does not match claim (%s)", errToken, noun, m.GetUID(), r.UID)
	}
	return nil
}

func (c *claims) user() api.User {
	k := c.Kubernetes
	u := api.User{
		Name: accountName(k.Namespace, k.ServiceAccount.Name), UID: k.ServiceAccount.UID,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + k.Namespace},
		Extra:  map[string][]string{},
	}
	if c.ID != "" {
		u.Extra[credentialID] = []string{"JTI=" + c.ID}
	}
	if k.Pod != nil {
		u.Extra[extraPodName], u.Extra[extraPodUID] = []string{k.Pod.Name}, []string{k.Pod.UID}
	}
	if k.Node != nil {
		u.Extra[extraNodeName] = []string{k.Node.Name}
		if k.Node.UID != "" {
			u.Extra[extraNodeUID] = []string{k.Node.UID}
		}
	}
	return u
}

func accountName(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// ownAudiences are those that a token has when none are asked for.
func (t *Tokens) ownAudiences() []string { return slices.Clone(t.audiences) }

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

// privateClaims are the claims of a token besides the registered ones, as in upstream.
type privateClaims struct {
	Kubernetes kubernetesClaims `json:"kubernetes.io"`
}

type kubernetesClaims struct {
	Namespace      string           `json:"namespace,omitempty"`
	ServiceAccount objectReference  `json:"serviceaccount"`
	Pod            *objectReference `json:"pod,omitempty"`
	Secret         *objectReference `json:"secret,omitempty"`
	Node           *objectReference `json:"node,omitempty"`
}

type objectReference struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

// These are extra fields of users that are authenticated by a token.
const (
	extraPodName  = "authentication.kubernetes.io/pod-name"
	extraPodUID   = "authentication.kubernetes.io/pod-uid"
	extraNodeName = "authentication.kubernetes.io/node-name"
	extraNodeUID  = "authentication.kubernetes.io/node-uid"
)

// deletionLeeway is how long a token remains valid after the object that it is bound to has been deleted. It lets a
// stopping pod make its last requests, and covers clock differences.
const deletionLeeway = time.Minute

const maxRemembered = 8192

var errInvalidToken = errors.New("invalid bearer token")

// Tokens verifies and issues service-account tokens.
type Tokens struct {
	keys      *keyFiles
	issuer    string
	audiences []string // the audiences of this server
	objects   api.Objects
	now       func() time.Time
	uses      *tokenUses // records uses of tokens in Secrets

	mu sync.Mutex
	// remembered caches tokens with a valid signature, by digest. The objects that they are bound to are checked each
	// time. It is cleared when the keys change.
	remembered     map[[sha256.Size]byte]*claims
	rememberedKeys *keySet // the keys that verified them
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

// Verify returns the user of a token, and those of the wanted audiences that the token is valid for; if none are
// wanted, this server's.
func (t *Tokens) Verify(token string, wanted []string) (api.User, []string, error) {
	c, err := t.verifySignature(token)
	if err != nil {
		return api.User{}, nil, err
	}
	if c.Issuer == accountkey.LegacyIssuer {
		return t.verifySecretToken(token, c, wanted)
	}
	if err := c.ValidateWithLeeway(jwt.Expected{Issuer: t.issuer, Time: t.now()}, jwt.DefaultLeeway); err != nil {
		return api.User{}, nil, fmt.Errorf("%w: %v", errInvalidToken, err)
	}
	audiences, err := audiencesOf(t.audiences, wanted, c.Audience)
	if err != nil {
		return api.User{}, nil, err
	}
	if err := t.checkBound(&c.Kubernetes); err != nil {
		return api.User{}, nil, err
	}
	return c.user(), audiences, nil
}

func (t *Tokens) verify(_ context.Context, token string, wanted []string) (api.User, []string, error) {
	return t.Verify(token, wanted)
}

// verifySignature returns the claims of a token with a valid signature.
func (t *Tokens) verifySignature(token string) (*claims, error) {
	digest := sha256.Sum256([]byte(token))
	keys := t.keys.current()
	t.mu.Lock()
	if t.rememberedKeys != keys {
		clear(t.remembered)
		t.rememberedKeys = keys
	}
	c := t.remembered[digest]
	t.mu.Unlock()
	if c != nil {
		return c, nil
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.ES512, jose.RS256})
	if err != nil || len(parsed.Headers) != 1 {
		return nil, errInvalidToken
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
		if t.rememberedKeys == keys {
			t.remembered[digest] = c
		}
		t.mu.Unlock()
		return c, nil
	}
	return nil, errInvalidToken
}

// checkBound returns an error unless all objects that the token is bound to still exist.
func (t *Tokens) checkBound(k *kubernetesClaims) error {
	if k.Namespace == "" || k.ServiceAccount.Name == "" {
		return errInvalidToken
	}
	if err := t.checkExists("serviceaccounts", "service account", k.Namespace, &k.ServiceAccount); err != nil {
		return err
	}
	if err := t.checkExists("secrets", "secret", k.Namespace, k.Secret); err != nil {
		return err
	}
	if err := t.checkExists("pods", "pod", k.Namespace, k.Pod); err != nil {
		return err
	}
	if k.Pod != nil {
		return nil // the node of a pod's token is only information
	}
	return t.checkExists("nodes", "node", "", k.Node)
}

func (t *Tokens) checkExists(resource, noun, namespace string, r *objectReference) error {
	if r == nil {
		return nil
	}
	obj, ok := t.objects.Get(schema.GroupResource{Resource: resource}, namespace, r.Name)
	if !ok {
		return fmt.Errorf("%w: %s %s has been deleted", errInvalidToken, noun, r.Name)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("read %s %s: %w", noun, r.Name, err)
	}
	if d := m.GetDeletionTimestamp(); d != nil && d.Add(deletionLeeway).Before(t.now()) {
		return fmt.Errorf("%w: %s %s has been deleted", errInvalidToken, noun, r.Name)
	}
	if r.UID != "" && string(m.GetUID()) != r.UID {
		return fmt.Errorf("%w: %s UID (%s) does not match claim (%s)", errInvalidToken, noun, m.GetUID(), r.UID)
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

// ownAudiences returns the audiences of a token for which none are requested.
func (t *Tokens) ownAudiences() []string { return slices.Clone(t.audiences) }

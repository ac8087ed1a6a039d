package accounttoken

import (
	"bytes"
	"fmt"

	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api/accountkey"
)

// fillSecret returns a copy of a Secret with the current CA bundle. It adds a token and a namespace unless the Secret
// has them. It returns nil if nothing is missing.
func fillSecret(s *corev1.Secret, a *corev1.ServiceAccount, ca []byte,
	token func() (string, error)) (*corev1.Secret, error) {
	wantsCA := len(ca) > 0 && !bytes.Equal(s.Data[corev1.ServiceAccountRootCAKey], ca)
	wantsNamespace, wantsToken := len(s.Data[corev1.ServiceAccountNamespaceKey]) == 0, len(
		s.Data[corev1.ServiceAccountTokenKey],
	) == 0
	if !wantsCA && !wantsNamespace && !wantsToken && s.Annotations[corev1.ServiceAccountUIDKey] == string(a.UID) {
		return nil, nil
	}
	s = s.DeepCopy()
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	if wantsCA {
		s.Data[corev1.ServiceAccountRootCAKey] = ca
	}
	if wantsNamespace {
		s.Data[corev1.ServiceAccountNamespaceKey] = []byte(s.Namespace)
	}
	if wantsToken {
		text, err := token()
		if err != nil {
			return nil, err
		}
		s.Data[corev1.ServiceAccountTokenKey] = []byte(text)
	}
	s.Annotations[corev1.ServiceAccountUIDKey] = string(a.UID) // Annotations is not nil: it contains the account's name
	return s, nil
}

// signToken returns a Secret's token, signed with the private key in a file. It reads the file each time, because a
// rotation replaces it.
func signToken(keyFile string, s *corev1.Secret, a *corev1.ServiceAccount) (string, error) {
	signer, _, err := accountkey.Signer(keyFile)
	if err != nil {
		return "", err
	}
	text, err := jwt.Signed(signer).
		Claims(jwt.Claims{Issuer: accountkey.LegacyIssuer, Subject: "system:serviceaccount:" + s.Namespace + ":" +
			a.Name}).
		Claims(accountkey.LegacyClaims{Namespace: s.Namespace, Secret: s.Name, AccountName: a.Name,
			AccountUID: string(a.UID)}).
		Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a token for service account %s/%s: %w", s.Namespace, a.Name, err)
	}
	return text, nil
}

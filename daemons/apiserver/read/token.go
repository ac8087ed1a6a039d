package read

import (
	"encoding/base64"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// continueToken is the content of a continue parameter: continue after the key Start, at a revision.
type continueToken struct {
	Version   string `json:"v"`
	Revision  int64  `json:"rv"`
	Start     string `json:"start"`
	Remaining int64  `json:"rest,omitempty"` // how many objects follow, if known
}

const tokenVersion = "meta.k8s.io/v1"

// inconsistentRevision is the revision of an inconsistent continue token, which resumes at the current state. A client
// gets one when its list has expired, and may use it instead of listing again.
const inconsistentRevision = -1

func (t continueToken) String() string {
	data, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func parseToken(text string) (continueToken, error) {
	var t continueToken
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	reason := ""
	switch {
	case err != nil:
		reason = ": " + err.Error()
	case t.Version != tokenVersion:
		reason = ": server does not recognize this encoded version " + t.Version
	case t.Revision == 0 || t.Revision < inconsistentRevision:
		reason = ": incorrect encoded start resourceVersion (version " + tokenVersion + ")"
	case t.Start == "":
		reason = ": encoded start key empty (version " + tokenVersion + ")"
	default:
		return t, nil
	}
	return t, apierrors.NewBadRequest("invalid continue token: continue key is not valid" + reason)
}

// expiredToken returns the error for a token whose revision is not available any more. The error has an inconsistent
// token.
func expiredToken(t continueToken) error {
	t.Revision, t.Remaining = inconsistentRevision, 0
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list " +
		"result. You can start a new list without the continue parameter, or use the continue token in this " +
		"response to retrieve the remainder of the results. Continuing with the provided token results in an " +
		"inconsistent list - objects that were created, modified, or deleted between the time the first chunk was " +
		"returned and now may show up in the list.")
	err.ErrStatus.ListMeta.Continue = t.String()
	return err
}

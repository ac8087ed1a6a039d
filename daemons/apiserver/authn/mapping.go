package authn

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	celref "github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"clusterctl/daemons/api"
)

// mapping converts an issuer's claims to a user, by named claims or by expressions.
type mapping struct {
	cfg apiserver.JWTAuthenticator
	cel authenticationcel.CELMapper
}

func (m *mapping) user(ctx context.Context, claims map[string]any) (u api.User, err error) {
	mapper, ok := types.DefaultTypeAdapter.NativeToValue(claims).(traits.Mapper)
	if !ok {
		return u, errors.New("its claims are not an object")
	}
	if u.Name, err = m.username(ctx, claims, mapper); err != nil {
		return u, err
	}
	if u.Groups, err = m.groups(ctx, claims, mapper); err != nil {
		return u, err
	}
	if u.UID, err = m.uid(ctx, claims, mapper); err != nil {
		return u, err
	}
	if u.Extra, err = m.extra(ctx, claims, mapper); err != nil {
		return u, err
	}
	return u, m.rules(ctx, claims, mapper, &u)
}

func (m *mapping) username(ctx context.Context, claims map[string]any, mapper traits.Mapper) (string, error) {
	if m.cel.Username != nil {
		r, err := m.cel.Username.EvalClaimMapping(ctx, mapper)
		if err != nil {
			return "", fmt.Errorf("find the user's name: %w", err)
		}
		name, ok := r.EvalResult.Value().(string)
		if !ok || name == "" {
			return "", errors.New("the expression of the user's name gives no text, or an empty one")
		}
		return name, nil
	}
	c := m.cfg.ClaimMappings.Username
	name, ok := claims[c.Claim].(string)
	if !ok || name == "" {
		return "", fmt.Errorf("the claim %q of the user's name is missing, empty or no text", c.Claim)
	}
	// Anyone could claim an unverified email address.
	if verified, exists := claims["email_verified"]; c.Claim == "email" && exists && verified != true {
		return "", errors.New("email not verified")
	}
	return stringOrEmpty(c.Prefix) + name, nil
}

func (m *mapping) groups(ctx context.Context, claims map[string]any, mapper traits.Mapper) ([]string, error) {
	if m.cel.Groups != nil {
		r, err := m.cel.Groups.EvalClaimMapping(ctx, mapper)
		if err != nil {
			return nil, fmt.Errorf("find the user's groups: %w", err)
		}
		return textsOf(r.EvalResult)
	}
	c := m.cfg.ClaimMappings.Groups
	if c.Claim == "" || claims[c.Claim] == nil {
		return nil, nil
	}
	list, err := textsOf(types.DefaultTypeAdapter.NativeToValue(claims[c.Claim]))
	if err != nil {
		return nil, fmt.Errorf("read the claim %q of the groups: %w", c.Claim, err)
	}
	for i := range list {
		list[i] = stringOrEmpty(c.Prefix) + list[i]
	}
	return list, nil
}

func (m *mapping) uid(ctx context.Context, claims map[string]any, mapper traits.Mapper) (string, error) {
	if m.cel.UID != nil {
		r, err := m.cel.UID.EvalClaimMapping(ctx, mapper)
		if err != nil {
			return "", fmt.Errorf("find the user's uid: %w", err)
		}
		uid, ok := r.EvalResult.Value().(string)
		if !ok {
			return "", errors.New("the expression of the uid gives no text")
		}
		return uid, nil
	}
	c := m.cfg.ClaimMappings.UID.Claim
	if c == "" {
		return "", nil
	}
	uid, ok := claims[c].(string)
	if !ok {
		return "", fmt.Errorf("the claim %q of the uid is missing or no text", c)
	}
	return uid, nil
}

func (m *mapping) extra(ctx context.Context, claims map[string]any, mapper traits.Mapper) (map[string][]string, error) {
	extra := map[string][]string{}
	if id, ok := claims["jti"].(string); ok && id != "" {
		extra[credentialID] = []string{"JTI=" + id}
	}
	if m.cel.Extra == nil {
		return extra, nil
	}
	results, err := m.cel.Extra.EvalClaimMappings(ctx, mapper)
	if err != nil {
		return nil, fmt.Errorf("find the user's extra values: %w", err)
	}
	for _, r := range results {
		e, ok := r.ExpressionAccessor.(*authenticationcel.ExtraMappingExpression)
		if !ok {
			continue
		}
		values, err := textsOf(r.EvalResult)
		if err != nil {
			return nil, fmt.Errorf("find the extra value %s: %w", e.Key, err)
		}
		if len(values) > 0 {
			extra[e.Key] = values
		}
	}
	return extra, nil
}

// rules checks the claims and the user against the validation rules.
func (m *mapping) rules(ctx context.Context, claims map[string]any, mapper traits.Mapper, u *api.User) error {
	for _, rule := range m.cfg.ClaimValidationRules {
		if rule.Claim != "" && claims[rule.Claim] != rule.RequiredValue {
			return fmt.Errorf("the claim %q is not %q", rule.Claim, rule.RequiredValue)
		}
	}
	if m.cel.ClaimValidationRules != nil {
		results, err := m.cel.ClaimValidationRules.EvalClaimMappings(ctx, mapper)
		if err := checkResults(results, err); err != nil {
			return err
		}
	}
	if m.cel.UserValidationRules != nil {
		user, ok := types.DefaultTypeAdapter.NativeToValue(map[string]any{"username": u.Name, "uid": u.UID,
			"groups": u.Groups, "extra": u.Extra}).(traits.Mapper)
		if !ok {
			return errors.New("the user cannot be looked at by expressions")
		}
		results, err := m.cel.UserValidationRules.EvalUser(ctx, user)
		return checkResults(results, err)
	}
	return nil
}

func checkResults(results []authenticationcel.EvaluationResult, err error) error {
	if err != nil {
		return fmt.Errorf("check a rule: %w", err)
	}
	for _, r := range results {
		if r.EvalResult.Value() == true {
			continue
		}
		message := ""
		switch a := r.ExpressionAccessor.(type) {
		case *authenticationcel.ClaimValidationCondition:
			message = a.Message
		case *authenticationcel.UserValidationCondition:
			message = a.Message
		}
		return fmt.Errorf("validation expression '%s' failed: %s", r.ExpressionAccessor.GetExpression(), message)
	}
	return nil
}

// textsOf converts a value to a list of strings. It accepts a string or a list; empty strings and null are left out.
func textsOf(v celref.Val) (list []string, err error) {
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.String:
		if v != "" {
			list = append(list, string(v))
		}
		return list, nil
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			more, err := textsOf(it.Next())
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		}
		return list, nil
	}
	return nil, errors.New("it is neither a text nor a list of texts")
}

func stringOrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

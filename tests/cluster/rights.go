package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
)

// manifests are what the documentation tells operators to apply.
const manifests = "../../config/kubernetes"

// A ShippedRole is a ClusterRole of a manifest.
type ShippedRole struct{ File, Name string }

var (
	// ImpersonatorRole is for a fairgate that impersonates its clients.
	ImpersonatorRole = ShippedRole{"deployment.yaml", "fairgate"}
	// SidecarRole is for a fairgate that is a front proxy and follows the policy objects.
	SidecarRole = ShippedRole{"sidecar/rbac.yaml", "fairgate-sidecar"}
	// OverlayRole is needed in addition if fairgate hosts the policy objects instead of the apiserver.
	OverlayRole = ShippedRole{"overlay/rbac.yaml", "fairgate-overlay"}
	// SecureAdminRole is needed in addition if fairgate has a secure admin port.
	SecureAdminRole = ShippedRole{"sidecar/rbac.yaml", "fairgate-secure-admin"}
	// MetricsReaderRole is an example of a role for Prometheus.
	MetricsReaderRole = ShippedRole{"metrics-reader.yaml", "fairgate-metrics-reader"}
	// PrecheckRole is needed in addition if fairgate reads pods and budgets before it forwards evictions.
	PrecheckRole = ShippedRole{"eviction/rbac.yaml", "fairgate-eviction-precheck"}
	// EvictionRole is needed in addition to PrecheckRole if fairgate carries evictions out.
	EvictionRole = ShippedRole{"eviction/rbac.yaml", "fairgate-eviction-authoritative"}
	// ControllerRole is needed in addition to LeaseRole if fairgate runs the disruption controller.
	ControllerRole = ShippedRole{"eviction/rbac.yaml", "fairgate-disruption-controller"}
	// LeaseRole is needed to be elected for that.
	LeaseRole = ShippedRole{"eviction/rbac.yaml", "fairgate-disruption-controller-lease"}
	// AdmissionRole is needed in addition if fairgate evaluates requests by admission policies.
	AdmissionRole = ShippedRole{"admission/rbac.yaml", "fairgate-admission"}
	// EvaluatedObjectsRole is an example of a role for the objects that policies evaluate.
	EvaluatedObjectsRole = ShippedRole{"admission/rbac.yaml", "fairgate-admission-objects"}
	// EditorRole is an example of a role for policy editors.
	EditorRole = ShippedRole{"overlay/rbac.yaml", "flow-control-editor"}
)

// Read reads the role from its manifest.
func (r ShippedRole) Read() (*rbacv1.ClusterRole, error) {
	file, err := os.Open(filepath.Join(manifests, r.File))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	documents := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		role := &rbacv1.ClusterRole{}
		if err := documents.Decode(role); err != nil {
			return nil, fmt.Errorf("%s: no ClusterRole %s: %w", r.File, r.Name, err)
		}
		if role.Kind == "ClusterRole" && role.Name == r.Name {
			return role, nil
		}
	}
}

// of is the name of the binding of a role to a user.
func (r ShippedRole) of(user string) string {
	return user + ":" + strings.ReplaceAll(r.File, "/", ":") + ":" + r.Name
}

// Grant gives a user exactly what the roles allow, and waits until that is in force. A user who has the roles already, from
// an earlier run of the test, keeps them.
func Grant(ctx context.Context, admin kubernetes.Interface, user string, roles ...ShippedRole) error {
	for _, shipped := range roles {
		role, err := shipped.Read()
		if err != nil {
			return err
		}
		if err := GrantRules(ctx, admin, user, shipped.of(user), role.Rules); err != nil {
			return err
		}
	}
	return nil
}

// GrantRules grants a user the rights of rules, by a role of that name, and waits until that is in force.
func GrantRules(ctx context.Context, admin kubernetes.Interface, user, name string, rules []rbacv1.PolicyRule) error {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	_, err := admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = admin.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return untilAllowed(ctx, admin, user, rules, true)
}

// Revoke revokes what [Grant] has granted by a role, and waits until that is in force.
func Revoke(ctx context.Context, admin kubernetes.Interface, user string, shipped ShippedRole) error {
	role, err := shipped.Read()
	if err != nil {
		return err
	}
	return RevokeRules(ctx, admin, user, shipped.of(user), role.Rules)
}

// RevokeRules revokes what [GrantRules] has granted, and waits until that is in force.
func RevokeRules(ctx context.Context, admin kubernetes.Interface, user, name string, rules []rbacv1.PolicyRule) error {
	for _, err := range []error{
		admin.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}),
		admin.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return untilAllowed(ctx, admin, user, rules, false)
}

// untilAllowed waits until the server says that a user may, or may not, do the first thing of each rule.
func untilAllowed(ctx context.Context, admin kubernetes.Interface, user string, rules []rbacv1.PolicyRule, allowed bool) error {
	for _, rule := range rules {
		spec := authorizationv1.SubjectAccessReviewSpec{User: user}
		if len(rule.NonResourceURLs) > 0 {
			spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: rule.Verbs[0], Path: rule.NonResourceURLs[0]}
		} else {
			spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0]}
			if len(rule.ResourceNames) > 0 {
				spec.ResourceAttributes.Name = rule.ResourceNames[0]
			}
		}
		err := poll(changeLimit, 20*time.Millisecond, func() (bool, error) {
			review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			return err == nil && review.Status.Allowed == allowed, err
		})
		if err != nil {
			return fmt.Errorf("%s, %+v: %w", user, rule, err)
		}
	}
	return nil
}

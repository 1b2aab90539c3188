package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// What the Trainer's kustomization says of JobSet: a web address, in a line that it says to remove
// where JobSet is installed already, as it is here.
const jobsetLine = "  - ../../third-party/jobset # Comment this line if JobSet is installed on the Kubernetes cluster.\n"

// render writes what the modules ship, so that a start needs neither Go nor its module cache:
// jobset.json, trainer.json and runtimes.json (lists of objects) and the controllers' own
// configuration files.
func render(jobset, trainer, out string) error {
	work, err := os.MkdirTemp("", "controlplane-render-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, one := range []struct{ name, module, folder, overlay string }{
		{"jobset", jobset, "config", "default"},
		{"trainer", trainer, "manifests", "overlays/manager"},
		{"runtimes", trainer, "manifests", "overlays/runtimes"},
	} {
		objs, err := kustomize(one.module, one.folder, one.overlay, filepath.Join(work, one.name))
		if err != nil {
			return err
		}
		if err := writeJSON(filepath.Join(out, one.name+".json"), objs); err != nil {
			return err
		}
	}
	configs := map[string]string{"jobset-config.yaml": filepath.Join(jobset, "config/components/manager/controller_manager_config.yaml")}
	if config := filepath.Join(trainer, "manifests/base/manager/controller_manager_config.yaml"); exists(config) {
		configs["trainer-config.yaml"] = config // 2.0 has flags instead
	}
	for to, from := range configs {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, to), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// kustomize renders one of a module's own kustomizations, in a writable copy of its manifest folder
// (the module cache is read-only).
func kustomize(module, folder, overlay, work string) ([]map[string]any, error) {
	if err := copyManifests(filepath.Join(module, folder), work); err != nil {
		return nil, err
	}
	opts := krusty.MakeDefaultOptions()
	opts.Reorder = krusty.ReorderOptionLegacy // namespaces first, webhooks last
	resources, err := krusty.MakeKustomizer(opts).Run(filesys.MakeFsOnDisk(), filepath.Join(work, overlay))
	if err != nil {
		return nil, fmt.Errorf("kustomize %s/%s: %w", folder, overlay, err)
	}
	var out []map[string]any
	for _, res := range resources.Resources() {
		obj, err := res.Map()
		if err != nil {
			return nil, err
		}
		out = append(out, obj)
	}
	return out, nil
}

func copyManifests(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := strings.ReplaceAll(string(data), jobsetLine, "")
		return os.WriteFile(filepath.Join(to, rel), []byte(text), 0o644)
	})
}

// changeYAML copies a YAML file with some fields ("a.b": value) set.
func changeYAML(from, to string, set map[string]any) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var obj map[string]any
	if err := yaml.Unmarshal(data, &obj); err != nil {
		return err
	}
	for path, value := range set {
		if err := unstructured.SetNestedField(obj, value, strings.Split(path, ".")...); err != nil {
			return err
		}
	}
	if data, err = yaml.Marshal(obj); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o600)
}

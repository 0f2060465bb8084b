.PHONY: check gpu fix readme

check:
	ruff format --check .
	ruff check .
	mypy
	TRITON_INTERPRET=1 pytest -m "not gpu"

gpu:
	pytest -m gpu

fix:
	ruff check --fix .
	ruff format .

readme:
	python -m tests.readme
